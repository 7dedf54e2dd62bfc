package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// measureCost is off by default: the bar is for a machine that does nothing else.
var measureCost = flag.Bool("policies-cost", false, "measure what the policies cost the writes of others")

const (
	costWrites = 5000
	costBar    = 300 * time.Microsecond
)

// TestPoliciesCostOthersLittle writes ConfigMaps that are no business of the policies, in turn in a namespace where all
// policies judge and in one where none does. No selector keeps such writes from the policies, because their label is a setting.
func TestPoliciesCostOthersLittle(t *testing.T) {
	if !*measureCost {
		t.Skip("only with -policies-cost")
	}
	w := newPoliced(t)
	w.applyPolicies("admission")
	w.applyPolicies("protect-copies")
	const unjudged = "unjudged"
	w.createNamespace(unjudged, map[string]string{unjudged: ""})
	w.exempt(unjudged)
	w.bindPublishers()
	// One installation, as in most clusters: the policies judge once for each.
	_, ofWorld := accountOf(w.installed.User)
	if err := w.admin.RbacV1().ClusterRoleBindings().Delete(w.ctx, ofWorld, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	probe := func(namespace string) error {
		_, err := w.as(tenant).CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, "probe", asSource), dryCreate)
		return err
	}
	w.until("publishing is refused", func() error { return inForce(publishersPolicy, probe(teamA)) })
	w.until("publishing is not judged", func() error { return probe(unjudged) })

	write := func(namespace string, i int) time.Duration {
		began := time.Now()
		cm := configMap(namespace, "others", withData(map[string]string{"key": fmt.Sprint(i)}))
		if _, err := w.as(tenant).CoreV1().ConfigMaps(namespace).Update(w.ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	for _, namespace := range []string{teamA, unjudged} {
		w.create(namespace, "others")
	}
	differences, without := make([]time.Duration, costWrites), make([]time.Duration, costWrites)
	for i := range costWrites {
		// Each is first as often as the other.
		if i%2 == 0 {
			without[i] = write(unjudged, i)
			differences[i] = write(teamA, i) - without[i]
		} else {
			differences[i] = write(teamA, i)
			without[i] = write(unjudged, i)
			differences[i] -= without[i]
		}
	}
	slices.Sort(differences)
	slices.Sort(without)
	// The ranks between which the median lies with 95 %.
	margin := int(math.Ceil(0.98 * math.Sqrt(costWrites)))
	median, low, high := differences[costWrites/2], differences[costWrites/2-margin], differences[costWrites/2+margin]
	w.figure("the policies cost a write that does not concern them %v in the median (95 %%: %v to %v), and it takes %v without them",
		median, low, high, without[costWrites/2])
	if low > costBar {
		t.Errorf("the policies cost other writes %v in the median, at least %v, want at most %v", median, low, costBar)
	}
}

// exempt has no policy judge in namespaces with the label.
func (w *policed) exempt(label string) {
	w.Helper()
	api := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	bindings, err := api.List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"matchResources": map[string]any{
		"namespaceSelector": metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist}}},
	}}})
	if err != nil {
		w.Fatal(err)
	}
	for _, b := range bindings.Items {
		if _, err := api.Patch(w.ctx, b.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}
}
