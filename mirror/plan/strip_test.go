package plan

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// truncated returns a namespace whose labels take more than the cache holds.
func truncated(name string) *corev1.Namespace {
	ns := plantest.Namespace(name)
	ns.Labels = map[string]string{}
	for i := range 100 {
		ns.Labels["example.com/"+strconv.Itoa(i)] = strings.Repeat("x", 63)
	}
	StripNamespace(ns)
	return ns
}

// TestC47StripNamespace keeps of a namespace what rules need, and no labels where they are too many. Stripping again changes
// nothing.
func TestC47StripNamespace(t *testing.T) {
	usual := plantest.Namespace("team-a", "tier", "gold")
	usual.Annotations = map[string]string{"note": "n"}
	usual.Finalizers, usual.Spec.Finalizers = []string{"a"}, []corev1.FinalizerName{"b"}
	for _, ns := range []*corev1.Namespace{usual, truncated("team-b")} {
		StripNamespace(ns)
		first := ns.DeepCopy()
		StripNamespace(ns)
		if !reflect.DeepEqual(ns, first) {
			t.Errorf("got %+v, want it as it was: %+v", ns, first)
		}
		if ns.Annotations["note"] != "" || ns.Finalizers != nil || ns.Spec.Finalizers != nil {
			t.Errorf("got %+v, want labels alone", ns)
		}
	}
	if LabelsTruncated(usual) || usual.Labels["tier"] != "gold" {
		t.Errorf("got %+v, want its labels", usual)
	}
	if ns := truncated("team-b"); !LabelsTruncated(ns) || len(ns.Labels) > 0 {
		t.Errorf("got %+v, want no labels", ns)
	}
}

// cached are the kinds of objects, besides sources, that the cache may hold, as the API server has them.
func cached(r *Rules) map[string]*corev1.ConfigMap {
	src := plantest.Source("platform", "settings", plantest.BinaryData("bin", 1), plantest.Managed)
	adopt := plantest.Annotation(AdoptAnnotation, "true")
	foreign := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.ConfigMap("team-a", "settings", append([]plantest.Option{plantest.Data("a", "b")}, o...)...)
	}
	return map[string]*corev1.ConfigMap{
		"a copy":                    plantest.Copy(r, src, "team-a", plantest.Managed),
		"C02 a copy labelled true":  plantest.Copy(r, src, "team-a", plantest.Label("mirror", "true"), plantest.Managed),
		"C02 of another instance":   plantest.Copy(r, src, "team-a", plantest.Label("mirror", "true"), plantest.Annotation(InstanceAnnotation, "x")),
		"a copy without its label":  plantest.Copy(r, src, "team-a", plantest.Without("mirror"), plantest.Managed),
		"a drifted copy":            plantest.Copy(r, src, "team-a", plantest.Data("key", "x"), plantest.Managed),
		"a copy with more":          plantest.Copy(r, src, "team-a", plantest.BinaryData("more", 1, 2, 3), plantest.Managed),
		"an immutable copy":         plantest.Copy(r, src, "team-a", plantest.Immutable, plantest.Managed),
		"an immutable drifted copy": plantest.Copy(r, src, "team-a", plantest.Immutable, plantest.Data("key", "x"), plantest.Managed),
		"an emptied copy":           plantest.Copy(r, src, "team-a", func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = nil, nil }),
		"a copy being deleted":      plantest.Copy(r, src, "team-a", plantest.Deleting, plantest.Managed),
		"a copy to adopt":           plantest.Copy(r, src, "team-a", adopt, plantest.Managed),
		"a released copy":           plantest.Copy(r, src, "team-a", plantest.Without(CopyAnnotation), plantest.Managed),
		"foreign":                   foreign(plantest.Label("mirror", "copy"), plantest.Managed),
		"foreign, to adopt":         foreign(adopt, plantest.Managed),
		"foreign, to adopt, same content": plantest.ConfigMap("team-a", "settings",
			plantest.Data("key", "value"), plantest.BinaryData("bin", 1), adopt, plantest.Immutable),
		"C49 to adopt, with a finalizer":  foreign(adopt, plantest.Finalizer),
		"foreign, to adopt, immutable":    foreign(adopt, plantest.Immutable),
		"C06 applied from elsewhere":      plantest.Copy(r, src, "team-a", plantest.Annotation(CopyAnnotation, "team-b/settings"), plantest.Managed),
		"a source out of scope":           plantest.Source("team-a", "settings", plantest.Managed),
		"C16 a source being deleted":      plantest.Source("platform", "settings", plantest.Deleting, plantest.Managed),
		"without maps":                    {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}, Data: map[string]string{"a": "b"}},
		"nothing but a name":              {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}},
		"C09 of a name of 253 characters": plantest.Marked("team-a", longName, plantest.Data("a", "b")),
		"a former source":                 plantest.ConfigMap("platform", "settings", plantest.Data("key", "value"), plantest.Managed),
		"a label of another value":        plantest.ConfigMap("platform", "settings", plantest.Data("key", "value"), plantest.Label("mirror", "yes"), plantest.Managed),
	}
}

func TestStripDropsThePayloadOfCopies(t *testing.T) {
	r := fromPlatform()
	for name, cm := range cached(r) {
		t.Run(name, func(t *testing.T) {
			before := cm.DeepCopy()
			r.Strip(cm)
			if cm.Data != nil || cm.BinaryData != nil || cm.ManagedFields != nil {
				t.Errorf("got data %v, binaryData %v, managedFields %v, want none", cm.Data, cm.BinaryData, cm.ManagedFields)
			}
			if got, want := payloadDigest(cm), payloadDigest(before); got != want {
				t.Errorf("got digest %x, want %x", got, want)
			}
			if len(payloadDigest(cm)) != 32 {
				t.Errorf("got a digest of %d bytes, want 32", len(payloadDigest(cm)))
			}
			// Nothing else changes.
			want := before.DeepCopy()
			want.Data, want.BinaryData, want.ManagedFields = nil, nil, nil
			got := cm.DeepCopy()
			delete(got.Annotations, digestMark)
			if _, self := got.Annotations[selfMark]; self {
				delete(got.Annotations, selfMark)
				got.Annotations[CopyAnnotation] = got.Namespace + "/" + got.Name
			}
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
	all := cached(r)
	all["a source"] = plantest.Source("platform", "settings", plantest.BinaryData("bin", 1), plantest.Managed)
	for name, cm := range all {
		r.Strip(cm)
		once := cm.DeepCopy()
		for range 2 {
			r.Strip(cm)
			if !reflect.DeepEqual(cm, once) {
				t.Errorf("%s: got %v, want %v as after the first Strip", name, cm, once)
			}
		}
	}
}

func TestStripKeepsSourcesWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		rules *Rules
		cm    *corev1.ConfigMap
	}{
		"a source": {testRules(), plantest.Source("platform", "settings",
			plantest.BinaryData("bin", 1), plantest.Label("app", "web"), plantest.Annotation("note", "n"))},
		"a source in a target":         {testRules(), plantest.Source("team-a", "settings")},
		"an immutable source":          {testRules(), plantest.Source("platform", "settings", plantest.Immutable)},
		"a frozen source":              {testRules(), plantest.Source("platform", "settings", plantest.Annotation(PrefixAnnotation, ""))},
		"within the source namespaces": {fromPlatform(), plantest.Source("platform", "settings")},
		"C06 applied from elsewhere":   {testRules(), plantest.Source("team-a", "settings", plantest.Annotation(CopyAnnotation, "team-b/settings"))},
		"without data":                 {testRules(), plantest.ConfigMap("platform", "settings", plantest.Label("mirror", "true"))},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.cm.DeepCopy()
			plantest.Managed(tc.cm)
			tc.rules.Strip(tc.cm)
			if !reflect.DeepEqual(tc.cm, want) {
				t.Errorf("got %v, want %v", tc.cm, want)
			}
		})
	}
}

// TestC42NoObjectCanCarryTheMark: the API server refuses each mark as an annotation. What it accepts is not taken for one.
func TestC42NoObjectCanCarryTheMark(t *testing.T) {
	refused := func(key string) bool {
		return len(apivalidation.ValidateAnnotations(texts{key: ""}, field.NewPath("metadata", "annotations"))) > 0
	}
	for _, mark := range []string{digestMark, selfMark, truncatedMark} {
		if !refused(mark) {
			t.Errorf("got %q accepted as an annotation by the API server, want it refused", mark)
		}
	}
	r, src := testRules(), plantest.Source("platform", "settings")
	for _, key := range []string{"payload", "a/payload", "payload/payload", "mirror-controller.github.io/payload"} {
		if refused(key) {
			t.Errorf("got %q refused by the API server, want it accepted: it forges nothing", key)
		}
		have := plantest.Copy(r, src, "team-a", plantest.Data("key", "edited"), plantest.Annotation(key, string(payloadDigest(src))))
		want := payloadDigest(payload(have.Data, have.BinaryData))
		r.Strip(have)
		if got := payloadDigest(have); got != want || have.Data != nil {
			t.Errorf("%s: got digest %x, data %v, want digest %x of its content", key, got, have.Data, want)
		}
	}
}

// TestC71TruncatedMetadata fills the metadata of an object up to the limits of the API server. The cache keeps a bounded part
// of it. A copy that has to change is re-created, or updated if it has finalizers.
func TestC71TruncatedMetadata(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"l*"}, []string{"n*"} })
	many := func(prefix string) plantest.Option {
		return func(cm *corev1.ConfigMap) {
			for _, k := range numbered(400) {
				plantest.Label(prefix+k, "some-value")(cm)
			}
			plantest.Annotation(prefix+"note", strings.Repeat("x", 200<<10))(cm)
		}
	}
	fill := func(cm *corev1.ConfigMap) {
		many("z-")(cm)
		for _, k := range numbered(300) {
			cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{Name: k})
		}
	}
	finalizers := func(cm *corev1.ConfigMap) {
		for _, k := range numbered(150) {
			cm.Finalizers = append(cm.Finalizers, "example.com/"+k)
		}
	}
	tiny := func(cm *corev1.ConfigMap) {
		for i := range 120 {
			cm.Labels[strconv.Itoa(i)] = ""
		}
	}
	src := plantest.Source("platform", "settings", plantest.Label("l-1", "a"), plantest.Annotation("n-1", "b"))
	copied := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.Copy(r, src, "team-a", append(o, fill)...)
	}
	for name, test := range map[string]struct {
		have *corev1.ConfigMap
		want Op
	}{
		"in sync":                  {copied(), OpNone},
		"edited":                   {copied(plantest.Data("key", "x")), OpRecreate},
		"edited, finalizers":       {copied(plantest.Data("key", "x"), finalizers), OpUpdate},
		"edited, immutable":        {copied(plantest.Data("key", "x"), plantest.Immutable), OpRecreate},
		"source changed":           {copied(plantest.Annotation(ChecksumAnnotation, "sha256:00")), OpRecreate},
		"copied label changed":     {copied(plantest.Label("l-1", "x")), OpNone},
		"copied list changed":      {copied(plantest.Annotation(CopiedAnnotation, "label:l-1")), OpNone},
		"managed-by removed":       {copied(plantest.Without(ManagedByLabel)), OpRecreate},
		"relabelled true":          {copied(plantest.Label("mirror", "true")), OpRecreate},
		"source forged":            {copied(plantest.Annotation(SourceAnnotation, strings.Repeat("a", 700)+"/settings")), OpNone},
		"instance forged":          {copied(plantest.Annotation(InstanceAnnotation, strings.Repeat("a", 700))), OpNone},
		"foreign":                  {plantest.ConfigMap("team-a", "settings", fill), OpNone},
		"many tiny labels":         {plantest.ConfigMap("team-a", "settings", tiny), OpNone},
		"adoptable but finalizers": {plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, "true"), fill, finalizers), OpNone},
		"adoptable":                {plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, "true"), many("z-")), OpRecreate},
	} {
		have := stripped(r, test.have)
		got := decideAt(r, viewOf(r, src), plantest.Namespace("team-a"), have)
		if got.Op != test.want {
			t.Errorf("%s: got %v, %v, want %v", name, got.Op, got.State, test.want)
		}
		if wrote := r.Desired(got.Source, "team-a", have); got.Op == OpUpdate && len(wrote.Finalizers) < 100 {
			t.Errorf("%s: got an update that leaves %d finalizers, want at least the first 100 kept", name, len(wrote.Finalizers))
		}
		if size := have.ObjectMeta.Size(); size > maxMetadata {
			t.Errorf("%s: got %d bytes of metadata in the cache, want at most %d", name, size, maxMetadata)
		}
		if !isTruncated(have) {
			t.Errorf("%s: got an object that is not truncated", name)
		}
	}
}

// TestWhyRecreated has copies that are re-created. One may be immutable, and re-created for its metadata all the same.
func TestWhyRecreated(t *testing.T) {
	r := testRules()
	src, fixed := plantest.Source("platform", "settings"), plantest.Source("platform", "settings", plantest.Immutable)
	large := plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
	edited, unmanaged := plantest.Data("key", "x"), plantest.Without(ManagedByLabel)
	const immutable, metadata = "it is immutable", "its metadata takes more than 8 KiB"
	for name, test := range map[string]struct {
		source *corev1.ConfigMap
		have   []plantest.Option
		want   string
	}{
		"immutable":                      {src, []plantest.Option{plantest.Immutable}, immutable},
		"immutable, with large metadata": {fixed, []plantest.Option{edited, large}, immutable},
		"large metadata":                 {src, []plantest.Option{edited, large}, metadata},
		"large metadata, immutable with the same content": {fixed, []plantest.Option{unmanaged, large}, metadata},
	} {
		have := stripped(r, plantest.Copy(r, test.source, "team-a", test.have...))
		v, target := viewOf(r, test.source), Target{Key: KeyOf(have), Namespace: plantest.Namespace("team-a"), Have: have}
		c := r.Decide(v, target)
		if c.Op != OpRecreate || c.WhyRecreated() != test.want {
			t.Errorf("%s: got %v, %q, want %v, %q", name, c.Op, c.WhyRecreated(), OpRecreate, test.want)
		}
		end := "; " + test.want + ", so it is deleted and created again"
		if got := r.Reason(v, target, c); !strings.HasSuffix(got, end) {
			t.Errorf("%s: got the reason %q, want one that ends with %q", name, got, end)
		}
	}
}

// TestC47CopiedMetadataIsNoForgery mirrors more metadata than the cache keeps: the copies are in sync.
func TestC47CopiedMetadataIsNoForgery(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyAnnotations = []string{"*"} })
	src := plantest.Source("platform", "settings", plantest.Annotation("long", strings.Repeat("x", 100<<10)))
	have := stripped(r, plantest.Copy(r, src, "team-a"))
	if c := decideAt(r, viewOf(r, src), plantest.Namespace("team-a"), have); c.State != StateSynced || !isTruncated(have) {
		t.Errorf("got %v, %v, truncated %v, want a truncated copy in sync", c.Op, c.State, isTruncated(have))
	}
}

func TestC39StripChangesNoMapOfItsArgument(t *testing.T) {
	cm := plantest.Copy(testRules(), plantest.Source("platform", "settings"), "team-a")
	before, shared := cm.DeepCopy(), *cm
	testRules().Strip(cm)
	if !reflect.DeepEqual(&shared, before) {
		t.Errorf("got the maps of the argument changed to %v, want %v", shared, before)
	}
}
