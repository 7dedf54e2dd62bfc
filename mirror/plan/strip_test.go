package plan

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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

// TestC47StripNamespace keeps of a namespace what rules need, and no labels where they are too many. Stripping again
// changes nothing.
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
	copied := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.Copy(r, src, "team-a", append(o, plantest.Managed)...)
	}
	return map[string]*corev1.ConfigMap{
		"a copy":                   copied(),
		"C02 a copy labelled true": copied(plantest.Label("mirror", "true")),
		"C02 of another instance":  copied(plantest.Label("mirror", "true"), plantest.Annotation(InstanceAnnotation, "x")),
		"a copy without its label": copied(plantest.Without("mirror")),
		"a copy with more":         copied(plantest.BinaryData("more", 1, 2, 3)),
		"an immutable copy":        copied(plantest.Immutable, plantest.Data("key", "x")),
		"an emptied copy":          copied(func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = nil, nil }),
		"a copy being deleted":     copied(plantest.Deleting),
		"a released copy":          copied(plantest.Without(CopyAnnotation)),
		"C06 applied elsewhere":    copied(plantest.Annotation(CopyAnnotation, "team-b/settings")),
		"foreign, to adopt": plantest.ConfigMap("team-a", "settings", plantest.Data("a", "b"),
			plantest.Label("mirror", "copy"),
			plantest.Annotation(AdoptAnnotation, "true"), plantest.Finalizer, plantest.Managed),
		"a source out of scope":      plantest.Source("team-a", "settings", plantest.Managed),
		"C16 a source being deleted": plantest.Source("platform", "settings", plantest.Deleting, plantest.Managed),
		"without maps": {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"},
			Data: texts{"a": "b"}},
		"C09 a name of 253 characters": plantest.Marked("team-a", longName, plantest.Data("a", "b")),
		"a label of another value": plantest.ConfigMap("platform", "settings", plantest.Data("key", "value"),
			plantest.Label("mirror", "yes")),
	}
}

// TestC42StripIsIdempotent: the cache keeps a digest of a payload, and all else as it was. A relist strips twice.
func TestC42StripIsIdempotent(t *testing.T) {
	r := fromPlatform()
	for name, cm := range cached(r) {
		before := cm.DeepCopy()
		r.Strip(cm)
		once := cm.DeepCopy()
		if r.Strip(cm); !reflect.DeepEqual(cm, once) {
			t.Errorf("%s: got %v, want %v as after the first Strip", name, cm, once)
		}
		if got, want := payloadDigest(cm), payloadDigest(before); got != want || len(got) != 32 {
			t.Errorf("%s: got digest %x, want %x", name, got, want)
		}
		want, got := before, once
		want.Data, want.BinaryData, want.ManagedFields = nil, nil, nil
		delete(got.Annotations, digestMark)
		if _, self := got.Annotations[selfMark]; self {
			delete(got.Annotations, selfMark)
			got.Annotations[CopyAnnotation] = got.Namespace + "/" + got.Name
		}
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestStripKeepsSourcesWhole, but for managed fields, also when it strips again.
func TestStripKeepsSourcesWhole(t *testing.T) {
	src := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o...) }
	for name, cm := range map[string]*corev1.ConfigMap{
		"a source": src(plantest.BinaryData("bin", 1), plantest.Label("app", "web"),
			plantest.Annotation("note", "n")),
		"an immutable source":        src(plantest.Immutable),
		"a frozen source":            src(plantest.Annotation(PrefixAnnotation, "")),
		"C06 applied from elsewhere": src(plantest.Annotation(CopyAnnotation, "team-b/settings")),
		"without data":               plantest.ConfigMap("platform", "settings", plantest.Label("mirror", "true")),
	} {
		want := cm.DeepCopy()
		plantest.Managed(cm)
		for range 2 {
			fromPlatform().Strip(cm)
		}
		if !reflect.DeepEqual(cm, want) {
			t.Errorf("%s: got %v, want %v", name, cm, want)
		}
	}
}

// TestC42NoObjectCanCarryTheMark: the API server refuses each mark as an annotation. An annotation that it accepts is
// not taken for one.
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
		have := plantest.Copy(r, src, "team-a", plantest.Data("key", "edited"),
			plantest.Annotation(key, string(payloadDigest(src))))
		want := payloadDigest(payload(have.Data, have.BinaryData))
		r.Strip(have)
		if got := payloadDigest(have); got != want || have.Data != nil {
			t.Errorf("%s: got digest %x, data %v, want digest %x of its content", key, got, have.Data, want)
		}
	}
}

// TestC71TruncatedMetadata fills the metadata of an object up to the limits of the API server. The cache keeps a
// bounded part of it. A copy that has to change is re-created, or updated if it has finalizers.
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
		"in sync":              {copied(), OpNone},
		"edited":               {copied(plantest.Data("key", "x")), OpRecreate},
		"edited, finalizers":   {copied(plantest.Data("key", "x"), finalizers), OpUpdate},
		"edited, immutable":    {copied(plantest.Data("key", "x"), plantest.Immutable), OpRecreate},
		"source changed":       {copied(plantest.Annotation(ChecksumAnnotation, "sha256:00")), OpRecreate},
		"copied label changed": {copied(plantest.Label("l-1", "x")), OpNone},
		"copied list changed":  {copied(plantest.Annotation(CopiedAnnotation, "label:l-1")), OpNone},
		"managed-by removed":   {copied(plantest.Without(ManagedByLabel)), OpRecreate},
		"relabelled true":      {copied(plantest.Label("mirror", "true")), OpRecreate},
		"source forged":        {copied(plantest.Annotation(SourceAnnotation, strings.Repeat("a", 700)+"/x")), OpNone},
		"instance forged":      {copied(plantest.Annotation(InstanceAnnotation, strings.Repeat("a", 700))), OpNone},
		"foreign":              {plantest.ConfigMap("team-a", "settings", fill), OpNone},
		"many tiny labels":     {plantest.ConfigMap("team-a", "settings", tiny), OpNone},
		"adoptable but finalizers": {plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, "true"),
			fill, finalizers), OpNone},
		"adoptable": {plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, "true"),
			many("z-")), OpRecreate},
	} {
		have := stripped(r, test.have)
		got := decideAt(r, viewOf(r, src), plantest.Namespace("team-a"), have)
		if got.Op != test.want {
			t.Errorf("%s: got %v, %v, want %v", name, got.Op, got.State, test.want)
		}
		if wrote := r.Desired(got.Source, "team-a", have); got.Op == OpUpdate && len(wrote.Finalizers) < 100 {
			t.Errorf("%s: got an update that leaves %d finalizers, want at least the first 100 kept", name,
				len(wrote.Finalizers))
		}
		if size := have.ObjectMeta.Size(); size > maxMetadata {
			t.Errorf("%s: got %d bytes of metadata in the cache, want at most %d", name, size, maxMetadata)
		}
		if !isTruncated(have) {
			t.Errorf("%s: got an object that is not truncated", name)
		}
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
