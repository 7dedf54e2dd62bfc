package plan

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC47StripNamespace keeps of a namespace what rules need: all of its labels,
// however many. Stripping again changes nothing.
func TestC47StripNamespace(t *testing.T) {
	ns := plantest.Namespace("team-a", "tier", "gold")
	for i := range 500 {
		ns.Labels["example.com/"+strconv.Itoa(i)] = strings.Repeat("x", 63)
	}
	labels := maps.Clone(ns.Labels)
	ns.Annotations = map[string]string{"note": "n"}
	ns.Finalizers = []string{"a"}
	ns.Spec.Finalizers = []corev1.FinalizerName{"b"}
	ns.Status.Phase = corev1.NamespaceTerminating
	ns.Status.Conditions = []corev1.NamespaceCondition{{Message: "some resources are left"}}
	want := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "team-a",
			UID:               "7",
			ResourceVersion:   "8",
			CreationTimestamp: metav1.Unix(9, 0),
			DeletionTimestamp: new(metav1.Unix(10, 0)),
			Labels:            labels,
		},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	ns.UID = want.UID
	ns.ResourceVersion = want.ResourceVersion
	ns.CreationTimestamp = want.CreationTimestamp
	ns.DeletionTimestamp = want.DeletionTimestamp
	StripNamespace(ns)
	if !reflect.DeepEqual(ns, want) {
		t.Errorf("got %+v, want %+v", ns, want)
	}
	first := ns.DeepCopy()
	StripNamespace(ns)
	if !reflect.DeepEqual(ns, first) {
		t.Errorf("got %+v, want it as it was: %+v", ns, first)
	}
}

// TestC42StripIsIdempotent: the cache keeps sources whole. Of others it keeps a digest of the payload, and all else as
// it was. A relist strips twice. Case C39: no map of the argument changes.
func TestC42StripIsIdempotent(t *testing.T) {
	r := fromPlatform()
	src := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o...) }
	copied := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.Copy(r, src(plantest.BinaryData("bin", 1)), "team-a", o...)
	}
	for name, cm := range map[string]*corev1.ConfigMap{
		"whole: a source": src(plantest.BinaryData("bin", 1), plantest.Label("app", "web"),
			plantest.Annotation("note", "n")),
		"whole: an immutable source":         src(plantest.Immutable),
		"whole: a frozen source":             src(plantest.Annotation(PrefixAnnotation, "")),
		"whole: C06 a source from elsewhere": src(plantest.Annotation(CopyAnnotation, "team-b/settings")),
		"whole: a source without data":       plantest.ConfigMap("platform", "settings", plantest.Label("mirror", "true")),

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
			plantest.Label("mirror", "copy"), plantest.Annotation(AdoptAnnotation, "true"), plantest.Finalizer),
		"a source out of scope":      plantest.Source("team-a", "settings"),
		"C16 a source being deleted": src(plantest.Deleting),
		"without maps": {ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"},
			Data: texts{"a": "b"}},
		"C09 a name of 253 characters": plantest.Marked("team-a", longName, plantest.Data("a", "b")),
		"a label of another value": plantest.ConfigMap("platform", "settings", plantest.Data("key", "value"),
			plantest.Label("mirror", "yes")),
	} {
		t.Run(name, func(t *testing.T) {
			want, argument := cm.DeepCopy(), *cm
			plantest.Managed(cm)
			r.Strip(cm)
			got := cm.DeepCopy()
			if r.Strip(cm); !reflect.DeepEqual(cm, got) {
				t.Errorf("got %v, want %v as after the first Strip", cm, got)
			}
			if !reflect.DeepEqual(&argument, want) {
				t.Errorf("got the maps of the argument changed to %v, want %v", argument, want)
			}
			if got, want := payloadDigest(cm), payloadDigest(want); got != want || len(got) != 32 {
				t.Errorf("got digest %x, want %x", got, want)
			}
			if got, want := r.MatchesChecksum(cm), r.MatchesChecksum(want); got != want {
				t.Errorf("got that it matches its checksum %v, want %v", got, want)
			}
			if !strings.HasPrefix(name, "whole: ") {
				want.Data, want.BinaryData = nil, nil
				if !namesItself(want) {
					delete(want.Annotations, CopyAnnotation)
				}
				if _, self := got.Annotations[selfMark]; self {
					got.Annotations[CopyAnnotation] = got.Namespace + "/" + got.Name
				}
				maps.DeleteFunc(got.Annotations, func(k, _ string) bool { return strings.HasPrefix(k, "/") })
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestC71StripIsBounded fills the metadata of an object up to the limits of the API server. The cache keeps a bounded
// part of it, and the decision is the same. Case C47.
func TestC71StripIsBounded(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"l*"}, []string{"n*"} })
	fill := func(cm *corev1.ConfigMap) {
		var list []string
		for _, k := range numbered(400) {
			plantest.Label("z-"+k, "some-value")(cm)
			cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{Name: k})
			list = append(list, "label:"+strings.Repeat(k, 10))
		}
		plantest.Annotation("z-note", strings.Repeat("x", 200<<10))(cm)
		if cm.Annotations[CopiedAnnotation] == "forged" {
			cm.Annotations[CopiedAnnotation] = strings.Join(list, ",")
		}
	}
	finalizers := func(cm *corev1.ConfigMap) {
		for _, k := range numbered(1000) {
			cm.Finalizers = append(cm.Finalizers, "example.com/"+k)
		}
	}
	long := strings.Repeat("a", maxValue+1)
	src := plantest.Source("platform", "settings", plantest.Label("l-1", "a"), plantest.Annotation("n-1", "b"))
	copied := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	adopt := plantest.Annotation(AdoptAnnotation, "true")
	for name, test := range map[string]struct {
		have  *corev1.ConfigMap
		op    Op
		state State
	}{
		"in sync":                  {copied(), OpNone, StateSynced},
		"a long value of adopt":    {copied(plantest.Annotation(AdoptAnnotation, long)), OpNone, StateSynced},
		"edited":                   {copied(plantest.Data("key", "x")), OpUpdate, StatePending},
		"edited, finalizers":       {copied(plantest.Data("key", "x"), finalizers), OpUpdate, StatePending},
		"edited, immutable":        {copied(plantest.Data("key", "x"), plantest.Immutable), OpRecreate, StatePending},
		"checksum edited":          {copied(plantest.Annotation(ChecksumAnnotation, long)), OpUpdate, StatePending},
		"copied label changed":     {copied(plantest.Label("l-1", "x")), OpUpdate, StatePending},
		"copied list forged":       {copied(plantest.Annotation(CopiedAnnotation, "forged")), OpUpdate, StatePending},
		"source forged":            {copied(plantest.Annotation(SourceAnnotation, long+"/x")), OpNone, StateForeign},
		"instance forged":          {copied(plantest.Annotation(InstanceAnnotation, long)), OpNone, StateForeign},
		"adoptable but finalizers": {plantest.ConfigMap("team-a", "settings", adopt, finalizers), OpNone, StateForeign},
		"adoptable":                {plantest.ConfigMap("team-a", "settings", adopt), OpUpdate, StatePending},
	} {
		t.Run(name, func(t *testing.T) {
			few := decideAt(r, viewOf(r, src), plantest.Namespace("team-a"), stripped(r, test.have))
			fill(test.have)
			have := stripped(r, test.have)
			c := decideAt(r, viewOf(r, src), plantest.Namespace("team-a"), have)
			if few.Op != test.op && name != "copied list forged" || c.Op != test.op || c.State != test.state {
				t.Errorf("got %v, and %v, %v with much metadata, want %v, %v", few.Op, c.Op, c.State, test.op, test.state)
			}
			if size := have.ObjectMeta.Size(); size > 8<<10 || !HasOthers(have) {
				t.Errorf("got %d bytes of metadata in the cache, others %v, want at most 8 KiB", size, HasOthers(have))
			}
		})
	}
}

// TestC71HasOthers: whatever a PUT of our own metadata would remove is other people's.
func TestC71HasOthers(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"l"}, []string{"n"} })
	src := plantest.Source("platform", "settings", plantest.Label("l", "a"), plantest.Annotation("n", "b"))
	listed := func(list string) plantest.Option { return plantest.Annotation(CopiedAnnotation, list) }
	theirs := plantest.Label("theirs", "1")
	for name, test := range map[string]struct {
		change plantest.Option
		want   bool
	}{
		"a copy":              {func(*corev1.ConfigMap) {}, false},
		"of another label":    {plantest.Label("mirror", "true"), false},
		"ours are gone":       {func(cm *corev1.ConfigMap) { cm.Labels, cm.Annotations = nil, nil }, false},
		"adopt":               {plantest.Annotation(AdoptAnnotation, "x"), false},
		"a label":             {theirs, true},
		"a label for another": {func(cm *corev1.ConfigMap) { delete(cm.Labels, "mirror"); theirs(cm) }, true},
		"an annotation":       {plantest.Annotation("theirs", ""), true},
		"a finalizer":         {plantest.Finalizer, true},
		"an owner":            {func(cm *corev1.ConfigMap) { cm.OwnerReferences = []metav1.OwnerReference{{}} }, true},
		"what is not listed":  {listed("label:l"), true},
		"listed twice":        {func(cm *corev1.ConfigMap) { theirs(cm); listed("label:l,label:l,annotation:n")(cm) }, true},
		"listed twice, with another between": {func(cm *corev1.ConfigMap) {
			listed("annotation:n,label:l,label:m,label:l")(cm)
			theirs(cm)
		}, true},
		"an annotation twice, with another between": {func(cm *corev1.ConfigMap) {
			listed("label:l,annotation:n,annotation:m,annotation:n")(cm)
			plantest.Annotation("theirs", "")(cm)
		}, true},
		"listed as something else": {func(cm *corev1.ConfigMap) {
			listed("label:l,annotation:n,field:theirs")(cm)
			plantest.Annotation("theirs", "")(cm)
		}, true},
		"never copied, listed": {func(cm *corev1.ConfigMap) {
			listed("label:l,annotation:n,label:helm.sh/x")(cm)
			plantest.Label("helm.sh/x", "")(cm)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HasOthers(stripped(r, plantest.Copy(r, src, "team-a", test.change))); got != test.want {
				t.Errorf("got others %v, want %v", got, test.want)
			}
		})
	}
}
