package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// webhook is an admission webhook that judges what the controllers write to the ConfigMaps of a namespace. The API
// server asks it between the judgement of a controller and the write itself: a test that holds its answer back can
// change the object in between.
type webhook struct {
	w     *World
	judge atomic.Pointer[judge]
}

// judge returns an error for what it refuses.
type judge func(*admissionv1.AdmissionRequest) error

// probeName begins the names of the ConfigMaps by which a test finds out that a webhook or a policy is in
// force; these refuse them to everybody.
const probeName = "admission-probe"

// StartWebhook puts a webhook before a namespace until the test ends, and returns when it is asked. A nil judge refuses
// nothing.
func (w *World) StartWebhook(namespace string, judge judge) *webhook {
	w.Helper()
	h := &webhook{w: w}
	h.judge.Store(&judge)
	expression := fmt.Sprintf(
		"request.namespace == %q && (request.userInfo.username == %q || request.name.startsWith(%q))",
		namespace, w.Installed.User, probeName)
	stop, err := w.Cluster.StartWebhook(w.Context(), namespace+".example.com", expression, admissionregistrationv1.Fail, h)
	w.noError(err)
	w.Cleanup(func() { w.CleanUp(stop()) })
	w.noError(untilRefused(w.Context(), w.Admin, namespace, "a probe"))
	return h
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
func (h *webhook) Allow() { h.judge.Store(new(judge)) }

// Hold has the controller's requests wait in the middle, from the first one
// with the operation on: reached is closed when that is there, and they go on
// when proceed is called. The controller cuts a request that waits long, and
// sends the one that it needs then, which may be another.
func (h *webhook) Hold(operation admissionv1.Operation) (reached <-chan struct{}, proceed func()) {
	arrived, released := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	hold := judge(func(r *admissionv1.AdmissionRequest) error {
		if r.UserInfo.Username != h.w.Installed.User {
			return nil
		}
		if r.Operation == operation {
			arrive()
		}
		select {
		case <-arrived:
			<-released
		default:
		}
		return nil
	})
	h.judge.Store(&hold)
	proceed = sync.OnceFunc(func() { close(released) })
	h.w.Cleanup(proceed)
	return arrived, proceed
}

// ServeHTTP answers the API server.
func (h *webhook) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	err, judge := error(nil), *h.judge.Load()
	if strings.HasPrefix(review.Request.Name, probeName) {
		err = errors.New("a probe")
	} else if judge != nil {
		err = judge(review.Request)
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil}
	if err != nil {
		review.Response.Result = &apierrors.NewForbidden(schema.GroupResource{}, review.Request.Name, err).ErrStatus
	}
	_ = json.NewEncoder(answer).Encode(review) // fails if the API server has gone away
}

// FillQuota gives a namespace that holds n ConfigMaps, its certificate among them, a quota of just these, and returns
// when it is in force.
func (w *World) FillQuota(namespace string, n int) (lift func()) {
	w.Helper()
	w.Await("the cluster's certificate is there, so that the count is known", func() bool {
		return w.Seen.ConfigMap(namespace, "kube-root-ca.crt") != nil
	})
	const name, what = "no-more", "count/configmaps"
	quotas := w.Admin.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(w.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse(strconv.Itoa(n))}},
	}, metav1.CreateOptions{})
	w.noError(err)
	w.Await("the quota is counted", func() bool {
		quota, err := quotas.Get(w.Context(), name, metav1.GetOptions{})
		used := quota.Status.Used[what]
		return err == nil && used.Value() == int64(n)
	})
	w.noError(untilRefused(w.Context(), w.Admin, namespace, name))
	return func() { w.CleanUp(quotas.Delete(w.Context(), name, metav1.DeleteOptions{})) }
}
