package suite

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

func RefuseByQuota(w *World, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	w.Eventually("the cluster's certificate is there, so that the count is known", func() error {
		if w.Seen.ConfigMap(namespace, "kube-root-ca.crt") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	const name, what = "no-more", "count/configmaps"
	quotas := w.Admin.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(w.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Until("the quota is counted", func() error {
		quota, err := quotas.Get(w.Context(), name, metav1.GetOptions{})
		if used := quota.Status.Used[what]; err == nil && used.Value() != 1 {
			err = errors.New("not yet")
		}
		return err
	})
	w.UntilProbesAre(RefusedProbes, namespace)
	return run, func() { w.CleanUp(quotas.Delete(w.Context(), name, metav1.DeleteOptions{})) }
}
