package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// isAName reports whether a namespace can have this name.
func isAName(s string) bool {
	const inside = "-0123456789abcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= 63 && strings.Trim(s, "-") == s && strings.Trim(s, inside) == ""
}

// marks is what an object says about itself.
type marks struct {
	owner     string // namespace/name of the source whose copy of ours it is; empty: it is none
	asks      bool   // it has the label of a source, is no copy and not being deleted
	adoptable bool   // its owner hands it over; has no meaning for a copy of ours
}

// readMarks is the paragraphs "Source", "Ours" and "A foreign object in the way" of the contract.
func readMarks(cm *corev1.ConfigMap, instance string) (m marks) {
	if cm == nil {
		return marks{}
	}
	isCopy := cm.Annotations["mirror-controller.github.io/copy"] == cm.Namespace+"/"+cm.Name
	labelled := cm.Labels["mirror"] == "true"
	m.asks = labelled && !isCopy && cm.DeletionTimestamp == nil
	ofOurInstance := cm.Annotations["mirror-controller.github.io/instance"] == instance
	from := strings.Split(cm.Annotations["mirror-controller.github.io/source"], "/")
	if isCopy && ofOurInstance && len(from) == 2 && isAName(from[0]) && from[0] != cm.Namespace && from[1] == cm.Name {
		m.owner = from[0] + "/" + from[1]
	}
	aSource, anothersCopy := labelled && !isCopy, isCopy && !ofOurInstance
	m.adoptable = cm.Annotations["mirror-controller.github.io/adopt"] == "true" && !aSource && !anothersCopy &&
		len(cm.Finalizers) == 0
	return m
}

// The seeds under testdata/fuzz run with every go test. To search for more:
// go test -run='^$' -fuzz='^FuzzOwnership$' -fuzztime=5m ./mirror/plan

// FuzzOwnership compares the code with readMarks about an object with any annotations. In their values '@' is its
// namespace and '#' its name.
func FuzzOwnership(f *testing.F) {
	f.Fuzz(func(t *testing.T, ns, name, mirrorLabel, source, copied, instance, adopt, flagInstance string, present byte) {
		// No name of an object has a slash, and the flags allow no empty instance.
		ns, name = strings.ReplaceAll(ns, "/", "-"), strings.ReplaceAll(name, "/", "-")
		if flagInstance == "" {
			flagInstance = "default"
		}
		cm := plantest.ConfigMap(ns, name, plantest.Data("key", "value"))
		expand := strings.NewReplacer("@", ns, "#", name)
		for i, key := range []string{SourceAnnotation, CopyAnnotation, InstanceAnnotation, AdoptAnnotation} {
			if present&(1<<i) != 0 {
				cm.Annotations[key] = expand.Replace([]string{source, copied, instance, adopt}[i])
			}
		}
		if present&16 != 0 {
			cm.Labels[DefaultLabel] = mirrorLabel
		}
		if present&32 != 0 {
			plantest.Deleting(cm)
		}
		if present&128 != 0 {
			plantest.Finalizer(cm)
		}
		r := testRules(func(o *Options) {
			o.Instance = flagInstance
			if present&64 != 0 {
				o.SourceNamespaces = []string{"platform", "team-a"}
			}
		})

		want := readMarks(cm, flagInstance)
		allowed := present&64 == 0 || ns == "platform" || ns == "team-a"
		before := cm.DeepCopy()
		check := func(state string) {
			owner, ours := r.SourceOf(cm)
			if ours != (want.owner != "") || ours && owner.String() != want.owner {
				t.Errorf("%s: got %s, ours %v, want %q", state, owner, ours, want.owner)
			}
			if got := r.AsksToBeMirrored(cm); got != want.asks {
				t.Errorf("%s: got AsksToBeMirrored %v, want %v", state, got, want.asks)
			}
			if got := r.IsSource(cm); got != (want.asks && allowed) {
				t.Errorf("%s: got IsSource %v, want %v", state, got, want.asks && allowed)
			}
			if got := r.adoptable(cm); got != want.adoptable {
				t.Errorf("%s: got adoptable %v, want %v", state, got, want.adoptable)
			}
			if ours && r.AsksToBeMirrored(cm) {
				t.Errorf("%s: got it ours and a source", state)
			}
		}
		check("from the API server")
		r.Strip(cm)
		check("from the cache")
		if got, want := payloadDigest(cm), payloadDigest(before); got != want {
			t.Errorf("got digest %x from the cache, want %x", got, want)
		}
	})
}
