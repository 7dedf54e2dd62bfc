package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hangSeconds is how long the API server waits for the webhook. It takes or refuses the write then, by the policy.
const hangSeconds int32 = 29

// hangWrites puts an admission webhook that never answers before the ConfigMaps of the namespaces whose names begin with the
// prefix, and returns when it is in force in one of them. After the release no write waits any more: a late call is answered
// at once.
func (b *bench) hangWrites(prefix, namespace string, policy admissionregistrationv1.FailurePolicyType) (release func()) {
	var asked atomic.Bool
	released := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Store(true)
		<-released
	}))
	hooks := b.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	hook := get(hooks.Create(b.ctx, hangingHook(prefix, server, policy), metav1.CreateOptions{}))
	for !asked.Load() {
		b.probe(namespace)
	}
	return func() {
		close(released)
		check(hooks.Delete(b.ctx, hook.Name, metav1.DeleteOptions{}))
	}
}

// hangingHook has the API server ask the server about the ConfigMaps of the namespaces whose names begin with the prefix.
func hangingHook(prefix string, server *httptest.Server, policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.ValidatingWebhookConfiguration {
	name := prefix + "webhook.example.com"
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "where", Expression: fmt.Sprintf("request.namespace.startsWith(%q)", prefix)}},
			FailurePolicy:           new(policy),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(hangSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// probe tries to write to a namespace, and gives up at once if that hangs.
func (b *bench) probe(namespace string) {
	ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	_, err := b.maps(namespace).Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if ctx.Err() == nil {
		check(err)
	}
	b.sleep(50 * time.Millisecond)
}
