package mirror

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The fuzz targets of what decides. What each compares with is a second, naive reading of the contract that is
// written out here and takes nothing from the code. Their seeds under testdata/fuzz run with every go test; to look
// for more: go test -run=^$ -fuzz=^FuzzPlan$ -fuzztime=5m ./mirror. See plan_fuzz_test.go for the plan as a whole.

// draws hands out small numbers from raw bytes; when these are used up, zeros.
type draws []byte

// below returns a number from 0 to n-1.
func (d *draws) below(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

// oneIn reports true once in n times.
func (d *draws) oneIn(n int) bool { return d.below(n) == n-1 }

// beginsAName reports whether the name of a namespace can begin with s.
func beginsAName(s string) bool {
	const inside = "-0123456789abcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= 63 && s[0] != '-' && strings.Trim(s, inside) == ""
}

// FuzzNarrowing reads the annotations of a source: what is malformed freezes it, with one line for each annotation;
// what is not narrows it, and never widens what the flags allow.
func FuzzNarrowing(f *testing.F) {
	r := testRules()
	f.Fuzz(func(t *testing.T, prefixes, selector string, present byte, otherNamespace string) {
		src := sourceCM("team-own", "settings")
		var listed []string
		malformed := 0
		if present&1 != 0 {
			src.Annotations[PrefixAnnotation] = prefixes
			for _, p := range strings.Split(prefixes, ",") {
				listed = append(listed, strings.TrimSpace(p))
			}
			if !slices.ContainsFunc(listed, func(p string) bool { return !beginsAName(p) }) {
				malformed--
			}
			malformed++
		}
		matches := labels.Everything()
		if present&2 != 0 {
			src.Annotations[SelectorAnnotation] = selector
			var err error
			if matches, err = labels.Parse(selector); err != nil {
				malformed++
			}
		}

		s := r.readSource(src)
		if (s.frozen != nil) != (malformed > 0) {
			t.Fatalf("got frozen by %v, want %d annotations malformed", s.frozen, malformed)
		}
		if s.frozen != nil {
			if lines := strings.Split(s.frozen.Error(), "\n"); len(lines) != malformed {
				t.Errorf("got %d lines %q, want one for each of %d annotations", len(lines), lines, malformed)
			}
		}
		for _, name := range append([]string{"team-own", "team-a", "team-x1", "other", otherNamespace}, listed...) {
			ns := namespace(name, "tier", "gold")
			byFlags := strings.HasPrefix(name, "team-") && !strings.HasPrefix(name, "team-x") && name != "team-own"
			byPrefix := listed == nil || slices.ContainsFunc(listed, func(p string) bool { return strings.HasPrefix(name, p) })
			want := malformed == 0 && byFlags && byPrefix
			if got := s.claimsName(r, name); got != want {
				t.Errorf("%q: got the name claimed %v, want %v", name, got, want)
			}
			if got := s.claims(r, ns); got != (want && matches.Matches(labels.Set(ns.Labels))) {
				t.Errorf("%q: got it claimed %v, want %v but for the selector", name, got, want)
			}
		}
	})
}

// FuzzCopiedAnnotation edits the copied annotation of a copy. Whatever it lists, our marks stay, and so does what it
// does not list; and what we write into it ourselves is what we read from it.
func FuzzCopiedAnnotation(f *testing.F) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"app"}; o.CopyAnnotations = []string{"note"} })
	src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"))
	s := r.readSource(src)
	f.Fuzz(func(t *testing.T, list string) {
		labelKeys, annotationKeys := copiedKeys(list, DefaultLabel)
		for _, k := range slices.Concat(labelKeys, annotationKeys) {
			if _, never := neverTravels[k]; never || strings.Contains(k, ",") {
				t.Errorf("got %q read from the list, want it passed over", k)
			}
		}
		items := strings.Split(list, ",")
		have := copyCM(r, src, "team-a", annotation(CopiedAnnotation, list))
		for _, k := range []string{"theirs", "helm.sh/chart"} {
			have.Labels[k], have.Annotations[k] = "1", "1"
		}
		r.strip(have)
		got := r.desired(s, "team-a", have)
		if !r.inLine(s, got) {
			t.Errorf("got %v, want it in line", got.ObjectMeta)
		}
		if got.Labels["helm.sh/chart"] != "1" || got.Annotations["helm.sh/chart"] != "1" {
			t.Error("got the marks of somebody else removed, which we never copy")
		}
		for what, there := range map[string]bool{"label:theirs": got.Labels["theirs"] == "1", "annotation:theirs": got.Annotations["theirs"] == "1"} {
			if want := !slices.Contains(items, what); there != want {
				t.Errorf("got %s there %v, want %v", what, there, want)
			}
		}

		wantLabels, wantAnnotations := texts{}, texts{}
		for i, item := range items {
			_, key, _ := strings.Cut(item, ":")
			if len(validation.IsQualifiedName(key)) > 0 || stays(key, DefaultLabel) {
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

// FuzzKeyPattern cuts a key at any place and puts a '*' there: what begins a valid key is accepted as a flag, and
// selects that key, and no other than those that begin so. What is refused begins none.
func FuzzKeyPattern(f *testing.F) {
	f.Fuzz(func(t *testing.T, key, other string, at uint16) {
		stem := key[:int(at)%(len(key)+1)]
		pattern := stem + "*"
		accepted := validOptions(func(o *Options) { o.CopyLabels = []string{pattern} }).Validate() == nil
		if valid := len(validation.IsQualifiedName(key)) == 0; valid && !accepted && len(stem) < len(key) && !strings.HasPrefix(key[len(stem):], "/") {
			t.Errorf("got %q refused, want it accepted as the beginning of the key %q", pattern, key)
		}
		if excluded := validOptions(func(o *Options) { o.ExcludeNamespaces = []string{pattern} }).Validate() == nil; excluded != beginsAName(stem) {
			t.Errorf("got %q accepted as an exclusion %v, want %v", pattern, excluded, beginsAName(stem))
		}
		for _, k := range []string{key, other, stem, stem + other, pattern} {
			if got, want := (keyPatterns{pattern}).match(k), strings.HasPrefix(k, stem); got != want {
				t.Errorf("%q and %q: got a match %v, want %v", pattern, k, got, want)
			}
			exact := strings.TrimRight(key, "*")
			if got, want := (keyPatterns{exact}).match(k), k == exact; got != want {
				t.Errorf("%q and %q: got a match %v, want %v", exact, k, got, want)
			}
		}
	})
}

// FuzzPercent reads a percentage, in digits and with its sign.
func FuzzPercent(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		digits, sign := strings.CutSuffix(value, "%")
		want, isNumber := new(big.Int).SetString(digits, 10)
		right := sign && isNumber && !strings.Contains(digits, "_") && want.Sign() >= 0 && want.Cmp(big.NewInt(100)) <= 0
		p := Percent(33)
		err := p.Set(value)
		switch {
		case (err == nil) != right:
			t.Errorf("got %d with error %v, want it accepted %v", p, err, right)
		case err != nil && p != 33:
			t.Errorf("got %d after an error, want it unchanged", p)
		case err == nil && int64(p) != want.Int64():
			t.Errorf("got %d, want %d", p, want)
		case err == nil:
			again := Percent(33)
			if err := again.Set(p.String()); err != nil || again != p {
				t.Errorf("got %d with error %v from %q, want %d", again, err, p.String(), p)
			}
		}
	})
}

// FuzzPruneLimit compares the brake with exact fractions.
func FuzzPruneLimit(f *testing.F) {
	f.Fuzz(func(t *testing.T, limit byte, part, more uint32) {
		p := Percent(limit % 101)
		whole := int64(part) + int64(more)
		reached := whole == 0 || big.NewRat(int64(part), whole).Cmp(big.NewRat(int64(p), 100)) >= 0
		want := p != 100 && part >= 11 && reached
		if got := p.exceeded(int(part), int(whole)); got != want {
			t.Errorf("%d of %d at %s: got exceeded %v, want %v", part, whole, p.String(), got, want)
		}
	})
}

// FuzzOwnership judges an object with any annotations. In its values '@' stands for its namespace and '#' for its name.
func FuzzOwnership(f *testing.F) {
	f.Fuzz(func(t *testing.T, ns, name, mirrorLabel, source, copied, instance, adopt, flagInstance string, present byte) {
		// No name of an object has a slash, and the flags let no instance be empty.
		ns, name = strings.ReplaceAll(ns, "/", "-"), strings.ReplaceAll(name, "/", "-")
		if flagInstance == "" {
			flagInstance = "default"
		}
		cm := configMap(ns, name, data("key", "value"))
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
			deleting(cm)
		}
		r := testRules(func(o *Options) {
			o.Instance = flagInstance
			if present&64 != 0 {
				o.SourceNamespaces = []string{"platform", "team-a"}
			}
		})

		reading := readMarks(cm, flagInstance)
		allowed := present&64 == 0 || ns == "platform" || ns == "team-a"
		before := cm.DeepCopy()
		check := func(state string) {
			owner, ours := r.sourceOf(cm)
			if ours != (reading.owner != "") || ours && owner.String() != reading.owner {
				t.Errorf("%s: got %s, ours %v, want %q", state, owner, ours, reading.owner)
			}
			if got := r.asksToBeMirrored(cm); got != reading.asks {
				t.Errorf("%s: got asksToBeMirrored %v, want %v", state, got, reading.asks)
			}
			if got := r.isSource(cm); got != (reading.asks && allowed) {
				t.Errorf("%s: got isSource %v, want %v", state, got, reading.asks && allowed)
			}
			if got := r.adoptable(cm); got != reading.adoptable {
				t.Errorf("%s: got adoptable %v, want %v", state, got, reading.adoptable)
			}
			if ours && r.asksToBeMirrored(cm) {
				t.Errorf("%s: got it ours and a source", state)
			}
		}
		check("from the API server")
		r.strip(cm)
		check("from the cache")
		if got, want := payloadDigest(cm), payloadDigest(before); got != want {
			t.Errorf("got digest %x from the cache, want %x", got, want)
		}
	})
}

// marks is what an object says about itself.
type marks struct {
	owner     string // namespace/name of the source of which it is a copy of ours; empty: it is not
	asks      bool   // it has the label of a source, is no copy and not being deleted
	adoptable bool   // whoever owns it hands it over; of a copy of ours it has no meaning
}

// readMarks reads the paragraphs "Source", "Ours" and "Foreign object in the way" of the contract.
func readMarks(cm *corev1.ConfigMap, instance string) (m marks) {
	self := cm.Namespace + "/" + cm.Name
	isCopy := cm.Annotations["mirror-controller.github.io/copy"] == self
	labelled := cm.Labels["mirror"] == "true"
	m.asks = labelled && !isCopy && cm.DeletionTimestamp == nil
	ofOurInstance := cm.Annotations["mirror-controller.github.io/instance"] == instance
	from := strings.Split(cm.Annotations["mirror-controller.github.io/source"], "/")
	if isCopy && ofOurInstance && len(from) == 2 && from[0] != "" && from[0] != cm.Namespace && from[1] == cm.Name {
		m.owner = from[0] + "/" + from[1]
	}
	handedOver := cm.Annotations["mirror-controller.github.io/adopt"] == "true"
	aSource, anothersCopy := labelled && !isCopy, isCopy && !ofOurInstance
	m.adoptable = handedOver && !aSource && !anothersCopy
	return m
}

// FuzzContentEncoding draws two contents, with metadata: they have one encoding if, and only if, they are equal.
func FuzzContentEncoding(f *testing.F) {
	// A drawn ConfigMap serves as a content: its data are the labels, its binaryData the annotations.
	content := func(cm *corev1.ConfigMap) (digest, texts, texts) {
		annotations := texts{}
		for k, v := range cm.BinaryData {
			annotations[k] = string(v)
		}
		return payloadDigest(payload(nil, nil, isImmutable(cm))), cm.Data, annotations
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		one, other := drawConfigMap(a), drawConfigMap(b)
		equal, same := canonical(one) == canonical(other), contentEncoding(content(one)) == contentEncoding(content(other))
		if equal != same {
			t.Errorf("%s and %s: got encodings equal %v, want %v", canonical(one), canonical(other), same, equal)
		}
		if sameSum := checksum(content(one)) == checksum(content(other)); equal != sameSum {
			t.Errorf("%s and %s: got checksums equal %v, want %v", canonical(one), canonical(other), sameSum, equal)
		}
		if want := contentEncoding(content(one)); contentEncoding(content(one.DeepCopy())) != want {
			t.Errorf("%s: got two encodings, want one", canonical(one))
		}
	})
}

// FuzzOptions takes any values for options. What is refused is refused in one line for each mistake, without line
// breaks, and what is accepted is what the flags promise.
func FuzzOptions(f *testing.F) {
	f.Fuzz(func(t *testing.T, prefixes, excluded, sources, mirrorLabel, instance, patterns string, all bool, numbers []byte) {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		number := draws(numbers)
		o := &Options{
			NamespacePrefixes: split(prefixes), AllNamespaces: all, ExcludeNamespaces: split(excluded), SourceNamespaces: split(sources),
			Label: mirrorLabel, Instance: instance, CopyLabels: split(patterns), CopyAnnotations: split(patterns),
			ConcurrentSources: number.below(4) - 1, ConcurrentWrites: number.below(4) - 1,
		}
		mistakes := 0
		count := func(wrong bool) {
			if wrong {
				mistakes++
			}
		}
		count(all == (len(o.NamespacePrefixes) > 0))
		for _, p := range o.NamespacePrefixes {
			count(!beginsAName(p))
		}
		for _, e := range o.ExcludeNamespaces {
			stem, wild := strings.CutSuffix(e, "*")
			count(!beginsAName(stem) || !wild && strings.HasSuffix(stem, "-"))
		}
		for _, s := range o.SourceNamespaces {
			count(!beginsAName(s) || strings.HasSuffix(s, "-"))
		}
		count(len(validation.IsQualifiedName(mirrorLabel)) > 0 || mirrorLabel == "app.kubernetes.io/managed-by")
		count(instance == "" || len(validation.IsValidLabelValue(instance)) > 0)
		for _, p := range slices.Concat(o.CopyLabels, o.CopyAnnotations) {
			count(!validKeyPattern(p)) // see FuzzKeyPattern
		}
		count(o.ConcurrentSources < 1)
		count(o.ConcurrentWrites < 1)

		before := fmt.Sprintf("%+v", o)
		err := o.Validate()
		if after := fmt.Sprintf("%+v", o); after != before {
			t.Errorf("got the options changed to %s, want %s", after, before)
		}
		if err == nil {
			if mistakes > 0 {
				t.Errorf("got %s accepted, want %d mistakes", before, mistakes)
			}
			return
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != mistakes {
			t.Errorf("%s: got %d lines %q, want %d", before, len(lines), lines, mistakes)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "--") || strings.ContainsAny(line, "\r\n") {
				t.Errorf("got the line %q, want it to begin with a flag", line)
			}
		}
	})
}
