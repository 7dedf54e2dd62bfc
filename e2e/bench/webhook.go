package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hang is how long the webhook holds a write back.
const hang = 29 * time.Second

// webhook is an admission webhook before the ConfigMaps of some namespaces. It never answers with a verdict: it holds the
// API server up, and the API server takes the write then.
type webhook struct {
	*httptest.Server
	once  sync.Once
	asked chan struct{} // closed at the first call

	mu   sync.Mutex
	open chan struct{} // closed: calls are not held back
}

// startWebhook puts a webhook before the namespaces whose names begin with the prefix, and returns when it is in force. It
// holds nothing back yet.
func (b *bench) startWebhook(prefix, namespace string) *webhook {
	h := &webhook{asked: make(chan struct{}), open: make(chan struct{})}
	h.release()
	h.Server = httptest.NewTLSServer(h)
	name := prefix + "webhook.example.com"
	get(b.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(b.ctx,
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: name,
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					URL:      &h.URL,
					CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
				},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
				MatchConditions: []admissionregistrationv1.MatchCondition{{
					Name: "where", Expression: fmt.Sprintf("request.namespace.startsWith(%q)", prefix)}},
				FailurePolicy:           new(admissionregistrationv1.Ignore),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
				TimeoutSeconds:          new(int32(30)),
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{}))
	for !h.inForce(b, namespace) {
		b.sleep(50 * time.Millisecond)
	}
	return h
}

// inForce reports whether the API server asks the webhook about a write in a namespace.
func (h *webhook) inForce(b *bench, namespace string) bool {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	get(b.maps(namespace).Create(b.ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
	select {
	case <-h.asked:
		return true
	default:
		return false
	}
}

// hold holds all calls back from now on.
func (h *webhook) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = make(chan struct{})
}

// release ends all calls, and holds none back any more.
func (h *webhook) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.open)
}

func (h *webhook) ServeHTTP(http.ResponseWriter, *http.Request) {
	h.once.Do(func() { close(h.asked) })
	h.mu.Lock()
	open := h.open
	h.mu.Unlock()
	select {
	case <-open:
	case <-time.After(hang):
	}
}
