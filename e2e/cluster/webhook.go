package cluster

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StartWebhook puts an admission webhook before the writes to ConfigMaps for which an expression of CEL holds, until it
// is stopped. The API server takes it up a moment later. The policy says what becomes of a write when no answer comes
// within 29 seconds: the API server allows no more than 30.
func (c *Cluster) StartWebhook(ctx context.Context, name, expression string,
	policy admissionregistrationv1.FailurePolicyType, answer http.Handler) (stop func() error, err error) {
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the API server may begin to ask when it is closed
	server.StartTLS()
	hooks := c.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "which", Expression: expression}},
			FailurePolicy:   &policy,
			SideEffects:     new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:  new(int32(29)), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	stop = func() error {
		err := hooks.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{})
		server.Close()
		return err
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}
