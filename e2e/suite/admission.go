package suite

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// webhook is an admission webhook that judges what the controllers write to the ConfigMaps of some namespaces. The
// API server asks it between the judgement of a controller and the write itself: a test that holds its answer back can
// change the object in between.
type webhook struct {
	w *World

	mu    sync.Mutex
	judge func(*admissionv1.AdmissionRequest) error
}

// probeName begins the names of the ConfigMaps by which a test finds out that a webhook or a policy is in
// force; these refuse them to everybody.
const probeName = "admission-probe"

// StartWebhook puts a webhook before a namespace until the test ends, and returns when it is asked. It refuses
// what judge returns an error for, with its status if it has one. A nil judge refuses nothing.
func (w *World) StartWebhook(namespace string, judge func(*admissionv1.AdmissionRequest) error) *webhook {
	w.Helper()
	h := &webhook{w: w, judge: judge}
	name, client := h.serve(namespace)
	hooks := w.Admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         name,
			ClientConfig: client,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "whose",
				Expression: fmt.Sprintf("request.userInfo.username == %q || request.name.startsWith(%q)",
					w.Installed.User, probeName),
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(30)), // the longest that there is
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	w.noError(err)
	w.Cleanup(func() { w.CleanUp(hooks.Delete(w.Background(), name, metav1.DeleteOptions{})) })
	w.noError(untilRefused(w.Context(), w.Admin, namespace, "a probe"))
	return h
}

// serve answers the API server, and returns a name for the webhook and where it is.
func (h *webhook) serve(namespace string) (name string, client admissionregistrationv1.WebhookClientConfig) {
	server := httptest.NewTLSServer(h)
	h.w.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	name = strings.ToLower(fmt.Sprintf("%s.%s.example.com", namespace, h.w.Instance))
	return name, admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificate}
}

// untilRefused waits until the API server refuses a client the ConfigMaps named probeName in a namespace, in words that
// hold this text. Nothing tells when it has taken up a webhook, a policy or a quota.
func untilRefused(ctx context.Context, client kubernetes.Interface, namespace, text string) error {
	return cluster.Until(ctx, Patience, func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, ConfigMap(namespace, probeName),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("not yet refused: %w", err)
		}
		return nil
	})
}

// Allow lets everything through from now on.
func (h *webhook) Allow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judge = nil
}

// HoldNext has the next request with the operation wait in the middle: reached is closed when it is there, and
// it goes on when proceed is called.
func (h *webhook) HoldNext(operation admissionv1.Operation) (reached <-chan struct{}, proceed func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judge = func(r *admissionv1.AdmissionRequest) error {
		if r.Operation == operation && held.CompareAndSwap(false, true) {
			close(arrived)
			<-released
		}
		return nil
	}
	proceed = sync.OnceFunc(func() { close(released) })
	h.w.Cleanup(proceed)
	return arrived, proceed
}

func (h *webhook) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := h.verdict(review.Request); err != nil {
		review.Response.Allowed = false
		forbidden := metav1.Status{Message: err.Error(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		review.Response.Result = &forbidden
		if status, ok := err.(apierrors.APIStatus); ok {
			review.Response.Result = new(status.Status())
		}
	}
	review.Request = nil
	answer.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(answer).Encode(review) // fails if the API server has gone away
}

func (h *webhook) verdict(r *admissionv1.AdmissionRequest) error {
	if strings.HasPrefix(r.Name, probeName) {
		return errors.New("a probe")
	}
	h.mu.Lock()
	judge := h.judge
	h.mu.Unlock()
	if judge == nil {
		return nil
	}
	return judge(r)
}

// FillQuota gives a namespace that holds n ConfigMaps, its certificate among them, a quota of just these, and returns
// when it is in force.
func (w *World) FillQuota(namespace string, n int) (lift func()) {
	w.Helper()
	w.Until("the cluster's certificate is there, so that the count is known", func() error {
		if w.Seen.ConfigMap(namespace, "kube-root-ca.crt") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	const name, what = "no-more", "count/configmaps"
	quotas := w.Admin.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(w.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse(strconv.Itoa(n))}},
	}, metav1.CreateOptions{})
	w.noError(err)
	w.Until("the quota is counted", func() error {
		quota, err := quotas.Get(w.Context(), name, metav1.GetOptions{})
		if used := quota.Status.Used[what]; err == nil && used.Value() != int64(n) {
			err = errors.New("not yet")
		}
		return err
	})
	w.noError(untilRefused(w.Context(), w.Admin, namespace, name))
	return func() { w.CleanUp(quotas.Delete(w.Context(), name, metav1.DeleteOptions{})) }
}
