package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// Every fuzz target compares the code with a second, naive reading of the contract. The seeds under testdata/fuzz run with
// every go test. To search for more: go test -run='^$' -fuzz='^FuzzPlan$' -fuzztime=5m ./mirror/plan

// FuzzNarrowing parses the annotations of a source. A malformed one freezes the source, with one line of error each. A
// valid one narrows it, and never widens what the flags allow.
func FuzzNarrowing(f *testing.F) {
	r := testRules()
	f.Fuzz(func(t *testing.T, prefixes, selector string, present byte, otherNamespace string) {
		src := plantest.Source("team-own", "settings")
		var listed []string
		malformed := 0
		if present&1 != 0 {
			src.Annotations[PrefixAnnotation] = prefixes
			for _, p := range strings.Split(prefixes, ",") {
				listed = append(listed, strings.TrimSpace(p))
			}
			if slices.ContainsFunc(listed, func(p string) bool { return !beginsAName(p) }) {
				malformed++
			}
		}
		matches := labels.Everything()
		if present&2 != 0 {
			src.Annotations[SelectorAnnotation] = selector
			var err error
			if matches, err = labels.Parse(selector); err != nil {
				malformed++
			}
		}

		s := r.ParseSource(src)
		if (s.Frozen != nil) != (malformed > 0) {
			t.Fatalf("got frozen by %v, want %d annotations malformed", s.Frozen, malformed)
		}
		if s.Frozen != nil {
			if lines := strings.Split(s.Frozen.Error(), "\n"); len(lines) != malformed {
				t.Errorf("got %d lines %q, want one for each of %d annotations", len(lines), lines, malformed)
			}
		}
		for _, name := range append([]string{"team-own", "team-a", "team-x1", "other", otherNamespace}, listed...) {
			ns := plantest.Namespace(name, "tier", "gold")
			byFlags := strings.HasPrefix(name, "team-") && !strings.HasPrefix(name, "team-x") && name != "team-own"
			byPrefix := listed == nil || slices.ContainsFunc(listed, func(p string) bool { return strings.HasPrefix(name, p) })
			want := malformed == 0 && byFlags && byPrefix
			got := r.Exclusion(s, ns)
			if byName := got == NotExcluded || got.byLabels(); byName != want {
				t.Errorf("%q: got exclusion %d, want it by labels or none: %v", name, got, want)
			}
			want = want && matches.Matches(labels.Set(ns.Labels))
			if (got == NotExcluded) != want {
				t.Errorf("%q: got exclusion %d, want none: %v", name, got, want)
			}
		}
	})
}

// FuzzCopiedAnnotation edits the copied annotation of a copy. Whatever it lists, our own metadata stays, and so does the
// metadata that it does not list. A list of ours is parsed to the keys that it was made of.
func FuzzCopiedAnnotation(f *testing.F) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"app"}; o.CopyAnnotations = []string{"note"} })
	src := plantest.Source("platform", "settings", plantest.Label("app", "web"), plantest.Annotation("note", "n"))
	s := r.ParseSource(src)
	f.Fuzz(func(t *testing.T, list string) {
		labelKeys, annotationKeys := copiedKeys(list, DefaultLabel)
		for _, k := range slices.Concat(labelKeys, annotationKeys) {
			if _, never := contractNeverCopied[k]; never || strings.Contains(k, ",") {
				t.Errorf("got %q from the list, want it skipped", k)
			}
		}
		items := strings.Split(list, ",")
		have := plantest.Copy(r, src, "team-a", plantest.Annotation(CopiedAnnotation, list))
		for _, k := range []string{"theirs", "helm.sh/chart"} {
			have.Labels[k], have.Annotations[k] = "1", "1"
		}
		got := r.Desired(s, "team-a", stripped(r, have))
		if !r.inSync(s, got) {
			t.Errorf("got %v, want it in sync", got.ObjectMeta)
		}
		if got.Labels["helm.sh/chart"] != "1" || got.Annotations["helm.sh/chart"] != "1" {
			t.Error("got a key removed that is never copied")
		}
		for what, there := range map[string]bool{"label:theirs": got.Labels["theirs"] == "1", "annotation:theirs": got.Annotations["theirs"] == "1"} {
			if want := !slices.Contains(items, what); there != want {
				t.Errorf("got %s there %v, want %v", what, there, want)
			}
		}

		wantLabels, wantAnnotations := texts{}, texts{}
		for i, item := range items {
			_, key, _ := strings.Cut(item, ":")
			if len(validation.IsQualifiedName(key)) > 0 || neverCopied(key, DefaultLabel) {
				continue
			}
			if i%2 == 0 {
				wantLabels[key] = ""
			} else {
				wantAnnotations[key] = ""
			}
		}
		labelKeys, annotationKeys = copiedKeys(copiedList(wantLabels, wantAnnotations), DefaultLabel)
		if want := slices.Sorted(maps.Keys(wantLabels)); !slices.Equal(labelKeys, want) {
			t.Errorf("got labels %q from our own list, want %q", labelKeys, want)
		}
		if want := slices.Sorted(maps.Keys(wantAnnotations)); !slices.Equal(annotationKeys, want) {
			t.Errorf("got annotations %q from our own list, want %q", annotationKeys, want)
		}
	})
}

// FuzzOwnership judges an object with any annotations. In their values '@' is its namespace and '#' its name.
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
