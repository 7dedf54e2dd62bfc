package mirror

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
)

func binaryData(k string, v ...byte) cmOption {
	return func(cm *corev1.ConfigMap) {
		if cm.BinaryData == nil {
			cm.BinaryData = map[string][]byte{}
		}
		cm.BinaryData[k] = v
	}
}

func managed(cm *corev1.ConfigMap) {
	cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
}

// TestInLine damages one thing at a time of a copy that is in line.
func TestInLine(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app*"}, []string{"note*"} })
	src := sourceCM("platform", "settings", binaryData("bin", 1, 2), label("app", "web"), label("app-empty", ""), annotation("note", "n"))
	s := r.readSource(src)
	for name, tc := range map[string]struct {
		edit cmOption
		want bool
	}{
		"untouched": {func(*corev1.ConfigMap) {}, true},

		"C19 data edited":                  {editData("key", "edited"), false},
		"C19 a key added":                  {editData("more", "1"), false},
		"C19 an empty key added":           {editData("more", ""), false},
		"C19 a key removed":                {func(cm *corev1.ConfigMap) { delete(cm.Data, "key") }, false},
		"C19 all data removed":             {func(cm *corev1.ConfigMap) { cm.Data = nil }, false},
		"C20 binaryData edited":            {binaryData("bin", 1, 3), false},
		"C20 a binary key added":           {binaryData("more"), false},
		"C20 a binary key removed":         {func(cm *corev1.ConfigMap) { cm.BinaryData = nil }, false},
		"C20 a key moved to binaryData":    {func(cm *corev1.ConfigMap) { cm.Data = nil; cm.BinaryData["key"] = []byte("value") }, false},
		"C23 made immutable":               {immutable, false},
		"C21 immutable false":              {func(cm *corev1.ConfigMap) { no := false; cm.Immutable = &no }, true},
		"C08 label removed":                {without("mirror"), false},
		"C02 label true":                   {label("mirror", "true"), false},
		"label of another value":           {label("mirror", "Copy"), false},
		"managed-by removed":               {without("app.kubernetes.io/managed-by"), false},
		"managed-by somebody else":         {label("app.kubernetes.io/managed-by", "Helm"), false},
		"C08 source removed":               {without("mirror-controller.github.io/source"), false},
		"source in another namespace":      {annotation("mirror-controller.github.io/source", "base/settings"), false},
		"source of another name":           {annotation("mirror-controller.github.io/source", "platform/other"), false},
		"C08 copy removed":                 {without("mirror-controller.github.io/copy"), false},
		"C06 copy names another object":    {annotation("mirror-controller.github.io/copy", "team-b/settings"), false},
		"C08 instance removed":             {without("mirror-controller.github.io/instance"), false},
		"C10 another instance":             {annotation("mirror-controller.github.io/instance", "other"), false},
		"checksum removed":                 {without("mirror-controller.github.io/checksum"), false},
		"checksum edited":                  {annotation("mirror-controller.github.io/checksum", "sha256:00"), false},
		"copied removed":                   {without("mirror-controller.github.io/copied"), false},
		"copied lists less":                {annotation("mirror-controller.github.io/copied", "label:app"), false},
		"C27 copied lists more":            {annotation("mirror-controller.github.io/copied", "annotation:note,label:app,label:apps"), false},
		"C12 adopt left over":              {annotation("mirror-controller.github.io/adopt", "true"), false},
		"adopt of another value left over": {annotation("mirror-controller.github.io/adopt", ""), false},
		"copied label removed":             {without("app"), false},
		"copied label edited":              {label("app", "db"), false},
		"copied label, empty, removed":     {without("app-empty"), false},
		"copied annotation removed":        {without("note"), false},
		"copied annotation edited":         {annotation("note", ""), false},

		"C27 other people's label":             {label("theirs", "1"), true},
		"C27 other people's annotation":        {annotation("theirs", "1"), true},
		"a label that the flags would copy":    {label("apps", "1"), true},
		"other people's finalizer":             {func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"theirs/x"} }, true},
		"another resourceVersion, another UID": {func(cm *corev1.ConfigMap) { cm.ResourceVersion, cm.UID = "99", "uid-99" }, true},
		"C21 the same bytes once more":         {func(cm *corev1.ConfigMap) { cm.BinaryData["bin"] = []byte{1, 2} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			have := copyCM(r, src, "team-a", tc.edit)
			if got := r.inLine(s, have.DeepCopy()); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := r.asWritten(s, have); got != tc.want {
				t.Errorf("in the answer to a write: got %v, want %v", got, tc.want)
			}
			r.strip(have)
			if got := r.inLine(s, have); got != tc.want {
				t.Errorf("from the cache: got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestInLineWithNothingCopied(t *testing.T) {
	r := testRules()
	src := sourceCM("platform", "settings", label("app", "web"))
	s := r.readSource(src)
	for name, tc := range map[string]struct {
		edit cmOption
		want bool
	}{
		"untouched":                         {func(*corev1.ConfigMap) {}, true},
		"C27 a list from an earlier time":   {annotation(CopiedAnnotation, "label:app"), false},
		"an empty list says nothing either": {annotation(CopiedAnnotation, ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.inLine(s, copyCM(r, src, "team-a", tc.edit)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestDesiredIsTheContract writes the marks of a copy out as section 1 of the contract lists them.
func TestDesiredIsTheContract(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"app"} })
	src := sourceCM("platform", "settings", binaryData("bin", 0, 255), label("app", "web"), label("other", "1"), annotation("note", "n"), immutable, managed)
	src.OwnerReferences, src.Finalizers = []metav1.OwnerReference{{Name: "owner"}}, []string{"theirs/x"}
	s := r.readSource(src)
	got := r.desired(s, "team-a", nil)
	yes := true
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "settings",
			Labels: map[string]string{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller", "app": "web"},
			Annotations: map[string]string{
				"mirror-controller.github.io/source":   "platform/settings",
				"mirror-controller.github.io/copy":     "team-a/settings",
				"mirror-controller.github.io/checksum": s.checksum,
				"mirror-controller.github.io/instance": "default",
				"mirror-controller.github.io/copied":   "label:app",
			},
		},
		Data:       map[string]string{"key": "value"},
		BinaryData: map[string][]byte{"bin": {0, 255}},
		Immutable:  &yes,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !strings.HasPrefix(s.checksum, "sha256:") || len(s.checksum) != len("sha256:")+64 {
		t.Errorf("got checksum %q, want sha256: and 64 digits", s.checksum)
	}
}

func TestDesiredFollowsTheFlags(t *testing.T) {
	r := testRules(func(o *Options) { o.Label, o.Instance = "example.com/mirror", "second" })
	src := configMap("platform", longName, label("example.com/mirror", "true"))
	got := r.desired(r.readSource(src), "team-a", nil)
	if got.Labels["example.com/mirror"] != "copy" || got.Labels["mirror"] != "" {
		t.Errorf("got labels %v, want the mirror label of the flags", got.Labels)
	}
	if got, want := got.Annotations["mirror-controller.github.io/instance"], "second"; got != want {
		t.Errorf("got instance %q, want %q", got, want)
	}
	if got, want := got.Annotations["mirror-controller.github.io/copy"], "team-a/"+longName; got != want {
		t.Errorf("C09: got copy %q, want %q", got, want)
	}
	if _, listed := got.Annotations["mirror-controller.github.io/copied"]; listed {
		t.Error("got a list of what was copied, want none where nothing was")
	}
	if owner, ours := r.sourceOf(got); !ours || owner != (cache.ObjectName{Namespace: "platform", Name: longName}) {
		t.Errorf("C09: got owner %v, %v, want the source", owner, ours)
	}
}

// TestDesiredKeepsAndRemoves is about the metadata of what is there already.
func TestDesiredKeepsAndRemoves(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app"}, []string{"note"} })
	src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"))
	s := r.readSource(src)
	older := sourceCM("platform", "settings", label("app", "old"), label("gone", "1"), annotation("gone", "1"))
	before := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"*"}, []string{"*"} })
	for name, tc := range map[string]struct {
		have        *corev1.ConfigMap
		labels      map[string]string // besides the contract's
		annotations map[string]string
	}{
		"C27 what was copied goes, what is other people's stays": {
			have:        copyCM(before, older, "team-a", label("theirs", "1"), annotation("theirs", "1")),
			labels:      map[string]string{"app": "web", "theirs": "1"},
			annotations: map[string]string{"note": "n", "theirs": "1"}},
		"an edited copied label": {
			have:        copyCM(r, src, "team-a", label("app", "db")),
			labels:      map[string]string{"app": "web"},
			annotations: map[string]string{"note": "n"}},
		"C12 adopted: the annotation goes, other metadata stays": {
			have:        configMap("team-a", "settings", annotation(AdoptAnnotation, "true"), annotation("theirs", "1"), label("theirs", "1"), data("mine", "1")),
			labels:      map[string]string{"app": "web", "theirs": "1"},
			annotations: map[string]string{"note": "n", "theirs": "1"}},
		"C12 adopted, of no metadata": {
			have:        &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}},
			labels:      map[string]string{"app": "web"},
			annotations: map[string]string{"note": "n"}},
		"C02 labelled true": {
			have:        copyCM(r, src, "team-a", label("mirror", "true")),
			labels:      map[string]string{"app": "web"},
			annotations: map[string]string{"note": "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.have.UID, tc.have.ResourceVersion, tc.have.Finalizers = "uid-7", "77", []string{"theirs/x"}
			r.strip(tc.have)
			got := r.desired(s, "team-a", tc.have)
			fresh := r.desired(s, "team-a", nil)
			for k, v := range map[string]string{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller"} {
				tc.labels[k] = v
			}
			for k, v := range fresh.Annotations {
				if strings.HasPrefix(k, "mirror-controller.github.io/") {
					tc.annotations[k] = v
				}
			}
			if !reflect.DeepEqual(got.Labels, tc.labels) {
				t.Errorf("got labels %v, want %v", got.Labels, tc.labels)
			}
			if !reflect.DeepEqual(got.Annotations, tc.annotations) {
				t.Errorf("got annotations %v, want %v", got.Annotations, tc.annotations)
			}
			if !reflect.DeepEqual(got.Data, src.Data) || len(got.BinaryData) > 0 {
				t.Errorf("got data %v, %v, want that of the source, whole", got.Data, got.BinaryData)
			}
			if got.UID != "uid-7" || got.ResourceVersion != "77" {
				t.Errorf("got UID %s, resourceVersion %s, want those that were judged", got.UID, got.ResourceVersion)
			}
			if !reflect.DeepEqual(got.Finalizers, []string{"theirs/x"}) {
				t.Errorf("got finalizers %v, want other people's kept", got.Finalizers)
			}
			if !r.inLine(s, got) {
				t.Error("got something desired that is not in line")
			}
		})
	}
}

// TestC27NothingIsCopiedAnyMore: the flags were taken back, or the source lost all that they select. The list
// on the copy has to go too, or the copy would never be in line.
func TestC27NothingIsCopiedAnyMore(t *testing.T) {
	before := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app"}, []string{"note"} })
	src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"))
	bare := sourceCM("platform", "settings")
	for name, tc := range map[string]struct {
		rules *rules
		src   *corev1.ConfigMap
	}{
		"by the flags":  {testRules(), src},
		"by the source": {before, bare},
	} {
		t.Run(name, func(t *testing.T) {
			have := copyCM(before, src, "team-a", label("theirs", "1"))
			tc.rules.strip(have)
			s := tc.rules.readSource(tc.src)
			got := tc.rules.desired(s, "team-a", have)
			want := tc.rules.desired(s, "team-a", nil)
			want.Labels["theirs"] = "1"
			if !reflect.DeepEqual(got.Labels, want.Labels) || !reflect.DeepEqual(got.Annotations, want.Annotations) {
				t.Errorf("got labels %v and annotations %v, want %v and %v", got.Labels, got.Annotations, want.Labels, want.Annotations)
			}
			if !tc.rules.inLine(s, got) {
				t.Error("got something desired that is not in line: it would be written for ever")
			}
		})
	}
}

// TestC39DesiredLeavesItsArgumentsAlone changes all of the result's maps and looks at the arguments.
func TestC39DesiredLeavesItsArgumentsAlone(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"*"}, []string{"*"} })
	for name, have := range map[string]*corev1.ConfigMap{
		"nothing there": nil,
		"a copy":        copyCM(r, sourceCM("platform", "settings", label("old", "1")), "team-a", label("theirs", "1"), managed),
		"adopted":       configMap("team-a", "settings", annotation(AdoptAnnotation, "true"), annotation(CopiedAnnotation, "label:x,annotation:y"), label("x", "1"), annotation("y", "1")),
		"without maps":  {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings", OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, Finalizers: []string{"f/f"}}},
	} {
		for _, stripped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stripped %v", name, stripped), func(t *testing.T) {
				src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"))
				s, have := r.readSource(src), have.DeepCopy()
				if stripped && have != nil {
					r.strip(have)
				}
				srcBefore, haveBefore := src.DeepCopy(), have.DeepCopy()
				labels, annotations := fmt.Sprint(s.labels), fmt.Sprint(s.annotations)
				got := r.desired(s, "team-a", have)
				got.Labels["changed"], got.Annotations["changed"] = "1", "1"
				for i := range got.Finalizers {
					got.Finalizers[i] = "changed"
				}
				for i := range got.OwnerReferences {
					got.OwnerReferences[i].Name = "changed"
				}
				if !reflect.DeepEqual(have, haveBefore) {
					t.Errorf("got have changed to %v, want %v", have, haveBefore)
				}
				if !reflect.DeepEqual(src, srcBefore) {
					t.Errorf("got the source changed to %v, want %v", src, srcBefore)
				}
				if fmt.Sprint(s.labels) != labels || fmt.Sprint(s.annotations) != annotations {
					t.Errorf("got what travels changed to %v, %v, want %v, %v", s.labels, s.annotations, labels, annotations)
				}
			})
		}
	}
}

// TestC42TheMarkIsNeverWritten looks for the cache's mark in all that is to be sent.
func TestC42TheMarkIsNeverWritten(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"*"}, []string{"*"} })
	src := sourceCM("platform", "settings", annotation("note", "n"))
	for name, have := range map[string]*corev1.ConfigMap{
		"in line":       copyCM(r, src, "team-a"),
		"drifted":       copyCM(r, src, "team-a", editData("key", "x")),
		"adopted":       configMap("team-a", "settings", annotation(AdoptAnnotation, "true")),
		"lists it":      copyCM(r, src, "team-a", annotation(CopiedAnnotation, "annotation:"+digestMark+",label:"+digestMark)),
		"labelled true": copyCM(r, src, "team-a", label("mirror", "true")),
	} {
		r.strip(have)
		if _, marked := have.Annotations[digestMark]; !marked {
			t.Errorf("%s: got no mark in the cache, want one", name)
		}
		got := r.desired(r.readSource(src), "team-a", have)
		if _, marked := got.Annotations[digestMark]; marked {
			t.Errorf("%s: got the mark in what is to be written", name)
		}
		if problems := apivalidation.ValidateAnnotations(got.Annotations, field.NewPath("metadata", "annotations")); len(problems) > 0 {
			t.Errorf("%s: got annotations that the API server refuses: %v", name, problems)
		}
	}
}

// stored are objects of every kind that the cache may hold.
func stored(r *rules) map[string]*corev1.ConfigMap {
	src := sourceCM("platform", "settings", binaryData("bin", 1), managed)
	return map[string]*corev1.ConfigMap{
		"a copy":                             copyCM(r, src, "team-a", managed),
		"C02 a copy labelled true":           copyCM(r, src, "team-a", label("mirror", "true"), managed),
		"C02 of another instance":            copyCM(r, src, "team-a", label("mirror", "true"), annotation(InstanceAnnotation, "x"), managed),
		"a copy without its label":           copyCM(r, src, "team-a", without("mirror"), managed),
		"a drifted copy":                     copyCM(r, src, "team-a", editData("key", "x"), managed),
		"a copy with more":                   copyCM(r, src, "team-a", binaryData("more", 1, 2, 3), managed),
		"an immutable copy":                  copyCM(r, src, "team-a", immutable, managed),
		"an immutable drifted copy":          copyCM(r, src, "team-a", immutable, editData("key", "x"), managed),
		"an emptied copy":                    copyCM(r, src, "team-a", func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = nil, nil }),
		"a copy being deleted":               copyCM(r, src, "team-a", deleting, managed),
		"a copy to adopt":                    copyCM(r, src, "team-a", annotation(AdoptAnnotation, "true"), managed),
		"a released copy":                    copyCM(r, src, "team-a", without(CopyAnnotation), managed),
		"foreign":                            configMap("team-a", "settings", data("a", "b"), label("mirror", "copy"), managed),
		"foreign, to adopt":                  configMap("team-a", "settings", data("a", "b"), annotation(AdoptAnnotation, "true"), managed),
		"foreign, to adopt, same content":    configMap("team-a", "settings", data("key", "value"), binaryData("bin", 1), annotation(AdoptAnnotation, "true"), immutable),
		"foreign, to adopt, immutable":       configMap("team-a", "settings", data("a", "b"), annotation(AdoptAnnotation, "true"), immutable),
		"C06 applied from elsewhere":         copyCM(r, src, "team-a", annotation(CopyAnnotation, "team-b/settings"), managed),
		"a source outside the source flags":  sourceCM("team-a", "settings", managed),
		"C16 a source being deleted":         sourceCM("platform", "settings", deleting, managed),
		"without maps":                       {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}, Data: map[string]string{"a": "b"}},
		"nothing but a name":                 {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}},
		"C09 of a name of 253 characters":    marked("team-a", longName, data("a", "b")),
		"unlabelled, and it was a source":    configMap("platform", "settings", data("key", "value"), managed),
		"labelled with something else again": configMap("platform", "settings", data("key", "value"), label("mirror", "yes"), managed),
	}
}

// fromPlatform are rules by which only ConfigMaps in the namespace platform can be sources.
func fromPlatform() *rules {
	return testRules(func(o *Options) { o.SourceNamespaces = []string{"platform"} })
}

func TestStripDropsThePayloadOfWhatIsNoSource(t *testing.T) {
	r := fromPlatform()
	for name, cm := range stored(r) {
		t.Run(name, func(t *testing.T) {
			before := cm.DeepCopy()
			r.strip(cm)
			if cm.Data != nil || cm.BinaryData != nil || cm.ManagedFields != nil {
				t.Errorf("got data %v, binaryData %v, managedFields %v, want none", cm.Data, cm.BinaryData, cm.ManagedFields)
			}
			if got, want := payloadDigest(cm), payloadDigest(before); got != want {
				t.Errorf("got digest %x, want %x", got, want)
			}
			if len(payloadDigest(cm)) != 32 {
				t.Errorf("got a digest of %d bytes, want 32", len(payloadDigest(cm)))
			}
			// All else stays as it was.
			want := before.DeepCopy()
			want.Data, want.BinaryData, want.ManagedFields = nil, nil, nil
			got := cm.DeepCopy()
			delete(got.Annotations, digestMark)
			if len(want.Labels) == 0 && len(got.Labels) == 0 {
				got.Labels, want.Labels = nil, nil
			}
			if len(want.Annotations) == 0 && len(got.Annotations) == 0 {
				got.Annotations, want.Annotations = nil, nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestC42StripIsIdempotent strips twice, as a relist does, and three times.
func TestC42StripIsIdempotent(t *testing.T) {
	r := fromPlatform()
	all := stored(r)
	all["a source"] = sourceCM("platform", "settings", binaryData("bin", 1), managed)
	for name, cm := range all {
		r.strip(cm)
		once := cm.DeepCopy()
		for range 2 {
			r.strip(cm)
			if !reflect.DeepEqual(cm, once) {
				t.Errorf("%s: got %v, want %v as after the first time", name, cm, once)
			}
		}
	}
}

func TestStripKeepsSourcesWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		rules *rules
		cm    *corev1.ConfigMap
	}{
		"a source":                     {testRules(), sourceCM("platform", "settings", binaryData("bin", 1), label("app", "web"), annotation("note", "n"))},
		"a source in a target":         {testRules(), sourceCM("team-a", "settings")},
		"an immutable source":          {testRules(), sourceCM("platform", "settings", immutable)},
		"a frozen source":              {testRules(), sourceCM("platform", "settings", annotation(PrefixAnnotation, ""))},
		"within the source namespaces": {fromPlatform(), sourceCM("platform", "settings")},
		"C06 applied from elsewhere":   {testRules(), sourceCM("team-a", "settings", annotation(CopyAnnotation, "team-b/settings"))},
		"without data":                 {testRules(), configMap("platform", "settings", label("mirror", "true"))},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.cm.DeepCopy()
			managed(tc.cm)
			tc.rules.strip(tc.cm)
			if !reflect.DeepEqual(tc.cm, want) {
				t.Errorf("got %v, want %v", tc.cm, want)
			}
		})
	}
}

// TestC42StripNeverChangesTheDecision decides about every object as it comes from the API server, and as the
// cache holds it.
func TestC42StripNeverChangesTheDecision(t *testing.T) {
	r := fromPlatform()
	src := sourceCM("platform", "settings", binaryData("bin", 1))
	views := map[string]view{
		"no source":         viewOf(r, "settings"),
		"the source":        viewOf(r, "settings", src),
		"immutable source":  viewOf(r, "settings", sourceCM("platform", "settings", binaryData("bin", 1), immutable)),
		"changed source":    viewOf(r, "settings", sourceCM("platform", "settings", data("key", "new"))),
		"frozen source":     viewOf(r, "settings", sourceCM("platform", "settings", annotation(PrefixAnnotation, ""))),
		"narrowed source":   viewOf(r, "settings", sourceCM("platform", "settings", annotation(PrefixAnnotation, "team-b"))),
		"source of a name":  viewOf(r, longName, sourceCM("platform", longName)),
		"source of nothing": viewOf(r, "settings", configMap("platform", "settings", label("mirror", "true"))),
	}
	ops := map[op]int{}
	for name, have := range stored(r) {
		stripped := have.DeepCopy()
		r.strip(stripped)
		for viewName, v := range views {
			for _, ns := range []*corev1.Namespace{namespace(have.Namespace), namespace(have.Namespace, "mirror", "false")} {
				want := r.decide(v, target{namespace: ns.Name, object: ns, have: have})
				got := r.decide(v, target{namespace: ns.Name, object: ns, have: stripped})
				ops[want.op]++
				if got.op != want.op || got.outcome != want.outcome || got.premise != want.premise || got.byFlags != want.byFlags || got.source != want.source || got.owner != want.owner {
					t.Errorf("%s, %s: got %v, %v, %+v from the cache, want %v, %v, %+v",
						name, viewName, got.op, got.outcome, got.premise, want.op, want.outcome, want.premise)
				}
				if want.source == nil || want.have == nil {
					continue
				}
				a, b := r.desired(want.source, ns.Name, have), r.desired(want.source, ns.Name, stripped)
				a.ManagedFields = nil
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%s, %s: got %v desired from the cache, want %v", name, viewName, b, a)
				}
			}
		}
	}
	for _, o := range []op{opNone, opUpdate, opRecreate, opDelete} {
		if ops[o] == 0 {
			t.Errorf("no object of this test leads to %v", o)
		}
	}
}

// TestC42NoObjectCanCarryTheMark forges the mark of the cache in every way that the API server lets through.
func TestC42NoObjectCanCarryTheMark(t *testing.T) {
	path := field.NewPath("metadata", "annotations")
	refused := func(key string) bool {
		return len(apivalidation.ValidateAnnotations(map[string]string{key: ""}, path)) > 0
	}
	if !strings.HasPrefix(digestMark, "/") || !refused(digestMark) {
		t.Fatalf("got %q accepted as an annotation by the API server, want it refused", digestMark)
	}
	// Whatever stands behind it: nothing before the slash is refused.
	for _, rest := range []string{"payload", "", "a", "A", "0", "a.b", "a-b", "a_b", "a/b", "/payload", "payload/", "mirror", "source", "checksum",
		strings.Repeat("a", 63), strings.Repeat("a", 253), "PAYLOAD", " payload", "payload "} {
		if key := "/" + rest; !refused(key) {
			t.Errorf("got %q accepted as an annotation by the API server, want it refused", key)
		}
	}
	// What the API server lets through is not taken for the mark.
	src := sourceCM("platform", "settings")
	r := testRules()
	honest := payloadDigest(src)
	forgeries := map[string]cmOption{}
	for _, key := range []string{"payload", "PAYLOAD", "a/payload", "payload/payload", "mirror-controller.github.io/payload",
		"mirror-controller.github.io/digest", "mirror/payload", "x.y/payload", "digest", "0/payload"} {
		if refused(key) {
			t.Errorf("got %q refused by the API server, want it accepted: it forges nothing", key)
		}
		forgeries["annotation "+key] = annotation(key, string(honest))
		forgeries["label "+key] = label(key, "1")
	}
	for _, key := range []string{"payload", "-", ".payload", "_"} {
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			t.Errorf("got %q refused by the API server as a key, want it accepted: it forges nothing", key)
		}
		forgeries["data "+key] = editData(key, string(honest))
		forgeries["binaryData "+key] = binaryData(key, []byte(honest)...)
	}
	for name, forge := range forgeries {
		have := copyCM(r, src, "team-a", editData("key", "edited"), forge)
		want := payloadDigest(payload(have.Data, have.BinaryData))
		r.strip(have)
		if have.Data != nil || have.BinaryData != nil {
			t.Errorf("%s: got data %v, %v in the cache, want it stripped", name, have.Data, have.BinaryData)
		}
		if got := payloadDigest(have); got != want || got == honest {
			t.Errorf("%s: got digest %x, want %x, that of its content", name, got, want)
		}
		c := r.decide(viewOf(r, "settings", src), target{namespace: "team-a", object: namespace("team-a"), have: have})
		if c.op != opUpdate {
			t.Errorf("%s: got %v, want the edit put right", name, c.op)
		}
	}
}

// TestStripSharesStrings checks that what is equal in two copies takes memory once: a thousand copies of one
// source differ in little.
func TestStripSharesStrings(t *testing.T) {
	r := testRules()
	// decoded returns a copy of which no string shares memory with another, as it comes off the wire.
	decoded := func(namespace string) *corev1.ConfigMap {
		cm := copyCM(r, sourceCM("platform", "settings"), namespace)
		cm.Name, cm.Namespace = strings.Clone(cm.Name), strings.Clone(cm.Namespace)
		for _, m := range []map[string]string{cm.Labels, cm.Annotations} {
			for k, v := range m {
				delete(m, k)
				m[strings.Clone(k)] = strings.Clone(v)
			}
		}
		return cm
	}
	strip := func(cm *corev1.ConfigMap) map[string]string {
		r.strip(cm)
		strs := map[string]string{"name": cm.Name}
		for _, m := range []map[string]string{cm.Labels, cm.Annotations} {
			for k, v := range m {
				strs["key "+k], strs["value of "+k] = k, v
			}
		}
		return strs
	}
	one, two := strip(decoded("team-a")), strip(decoded("team-b"))
	if len(one) != 1+2*2+2*5 {
		t.Errorf("got %d strings, want those of the name, 2 labels and 5 annotations", len(one))
	}
	for what, s := range one {
		if other := two[what]; s == other && unsafe.StringData(s) != unsafe.StringData(other) {
			t.Errorf("%s: got %q in memory twice, want once", what, s)
		}
	}
}

func TestC39StripChangesNoMapThatCameIn(t *testing.T) {
	cm := copyCM(testRules(), sourceCM("platform", "settings"), "team-a")
	before, shared := cm.DeepCopy(), *cm
	testRules().strip(cm)
	if !reflect.DeepEqual(&shared, before) {
		t.Errorf("got the maps that came in changed to %v, want %v", shared, before)
	}
}
