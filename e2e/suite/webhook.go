package suite

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// webhook is an admission webhook that judges what the controllers write to the ConfigMaps of some namespaces. The
// API server asks it between the judgement of a controller and the write itself: a test that holds its answer back can
// change the object in between.
type webhook struct {
	w *World

	mu    sync.Mutex
	judge func(*admissionv1.AdmissionRequest) error
	patch []byte // how it alters what is written, as a JSON patch; empty: not at all
}

// probeName begins the names of the ConfigMaps by which a test finds out that a webhook or a policy is in
// force; these refuse them to everybody.
const probeName = "admission-probe"

// StartWebhook puts a webhook before a namespace until the test ends, and returns when it is asked. It refuses
// what judge returns an error for, with its status if it has one. A nil judge refuses nothing.
func (w *World) StartWebhook(namespace string, judge func(*admissionv1.AdmissionRequest) error) *webhook {
	w.Helper()
	return w.StartWebhookBy(OnlyNamespace(namespace), namespace, judge)
}

// StartWebhookBy is startWebhook for all namespaces that the selector matches. The given one must be among them.
func (w *World) StartWebhookBy(selector *metav1.LabelSelector, namespace string, judge func(*admissionv1.AdmissionRequest) error) *webhook {
	w.Helper()
	h := &webhook{w: w, judge: judge}
	name, client := h.serve(namespace)
	hooks := w.Admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    name,
			ClientConfig:            client,
			Rules:                   []admissionregistrationv1.RuleWithOperations{WritesOfConfigMaps},
			NamespaceSelector:       selector,
			MatchConditions:         w.ControllersAndProbes(),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(webhookSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.CleanUp(hooks.Delete(w.Background(), name, metav1.DeleteOptions{})) })
	w.UntilProbesAre(RefusedProbes, namespace)
	return h
}

// StartAltering is startWebhook for one that alters what is written, by a JSON patch.
func (w *World) StartAltering(namespace, patch string) *webhook {
	w.Helper()
	h := &webhook{w: w, patch: []byte(patch)}
	name, client := h.serve(namespace)
	hooks := w.Admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(w.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    name,
			ClientConfig:            client,
			Rules:                   []admissionregistrationv1.RuleWithOperations{WritesOfConfigMaps},
			NamespaceSelector:       OnlyNamespace(namespace),
			MatchConditions:         w.ControllersAndProbes(),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(webhookSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.CleanUp(hooks.Delete(w.Background(), name, metav1.DeleteOptions{})) })
	w.UntilProbesAre(RefusedProbes, namespace)
	return h
}

// webhookSeconds is the longest time that the API server waits for a webhook.
const webhookSeconds int32 = 30

// serve answers the API server, and returns a name for the webhook and where it is.
func (h *webhook) serve(namespace string) (name string, client admissionregistrationv1.WebhookClientConfig) {
	server := httptest.NewTLSServer(h)
	h.w.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	name = strings.ToLower(fmt.Sprintf("%s.%s.example.com", namespace, h.w.Instance))
	return name, admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificate}
}

// writesOfConfigMaps, onlyNamespace and controllersAndProbes confine webhooks and policies.
var WritesOfConfigMaps = admissionregistrationv1.RuleWithOperations{
	Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
	Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
}

func OnlyNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}
}

func (w *World) ControllersAndProbes() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{
		Name:       "whose",
		Expression: fmt.Sprintf("request.userInfo.username == %q || request.name.startsWith(%q)", w.Installed.User, probeName),
	}}
}

// Whether a namespace takes probes.
const (
	acceptedProbes = true
	RefusedProbes  = false
)

// UntilProbesAre waits until the API server accepts or refuses the ConfigMaps named probeName in a namespace.
func (w *World) UntilProbesAre(accepted bool, namespace string) {
	w.Helper()
	w.Until("admission of "+namespace, func() error {
		_, err := w.Admin.CoreV1().ConfigMaps(namespace).Create(w.Context(), ConfigMap(namespace, probeName),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case accepted:
			return err
		case err == nil:
			return errors.New("not in force yet")
		}
		return nil
	})
}

// Allow lets everything through from now on.
func (h *webhook) Allow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judge, h.patch = nil, nil
}

// HoldNext has the next request with the operation wait in the middle: reached is closed when it is there, and
// it goes on when proceed is called.
func (h *webhook) HoldNext(operation admissionv1.Operation) (reached <-chan struct{}, proceed func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judge = func(r *admissionv1.AdmissionRequest) error {
		if r.Operation == operation {
			first := false
			once.Do(func() { first = true })
			if first {
				close(arrived)
				<-released
			}
		}
		return nil
	}
	var proceeded sync.Once
	proceed = func() { proceeded.Do(func() { close(released) }) }
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
		review.Response.Result = &metav1.Status{Message: err.Error(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		if status, ok := err.(apierrors.APIStatus); ok {
			review.Response.Result = new(status.Status())
		}
	}
	h.mu.Lock()
	if len(h.patch) > 0 && review.Request.Operation != admissionv1.Delete {
		review.Response.Patch, review.Response.PatchType = h.patch, new(admissionv1.PatchTypeJSONPatch)
	}
	h.mu.Unlock()
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
