package mirror

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestRepair: the event of a change to a copy restores the copy, and the repair counts once. Other people's metadata
// stays, unless a copy has to be re-created, an immutable one or one with more than the cache holds: the admission
// policy lets this account add none. Case C27.
func TestRepair(t *testing.T) {
	none := func(cm *corev1.ConfigMap) { cm.Data = nil }
	for name, tc := range map[string]struct {
		edit  plantest.Option // nil: deleted
		cause string
	}{
		"deleted":                  {nil, "deleted"},
		"C19 edited":               {data("spoilt"), "edited"},
		"C19 a key more":           {plantest.Data("theirs", "x"), "edited"},
		"C19 a key less":           {none, "edited"},
		"C08 unlabelled":           {unlabelled, "unlabelled"},
		"C02 labelled as a source": {plantest.Label("mirror", "true"), "unlabelled"},
		"C23 immutable":            {plantest.Immutable, "edited"},
		"C23 immutable, with other data": {func(cm *corev1.ConfigMap) {
			plantest.Immutable(cm)
			data("spoilt")(cm)
		}, "edited"},
		"C71 edited, with much metadata": {func(cm *corev1.ConfigMap) {
			plantest.Annotation("note", strings.Repeat("x", 100<<10))(cm)
			data("spoilt")(cm)
		}, "edited"},
		"C65 the checksum edited":         {plantest.Annotation(plan.ChecksumAnnotation, "sha256:00"), "metadata"},
		"a label of ours changed":         {plantest.Label("app.kubernetes.io/managed-by", "helm"), "metadata"},
		"the annotation of the flag list": {plantest.Annotation("mirror-controller.github.io/copied", "nothing"), "metadata"},
	} {
		t.Run(name, inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			s.edit("team-000", plantest.Label("theirs", "x"))
			time.Sleep(time.Second)
			if tc.edit == nil {
				s.remove("team-000")
			} else {
				s.edit("team-000", tc.edit)
			}
			synctest.Wait()
			cm := s.get("team-000")
			s.wantCopy("team-000", "value")
			if len(cm.Data) != 1 || cm.Immutable != nil || cm.Labels["app.kubernetes.io/managed-by"] != "mirror-controller" {
				t.Errorf("got %v, want it as it was", cm)
			}
			recreated := tc.edit == nil || strings.HasPrefix(name, "C23 immutable")
			if !recreated && cm.Labels["theirs"] != "x" {
				t.Errorf("got labels %v, want other people's kept", cm.Labels)
			}
			s.wantMetric(1, "mirror_repairs_total", tc.cause)
			s.wantRestored()
			before := s.CountAll("", "get", "create", "update", "delete")
			time.Sleep(time.Hour)
			if n := s.CountAll("", "get", "create", "update", "delete") - before; n > 0 {
				t.Errorf("got %d requests more in an hour, want none", n)
			}
		}))
	}
}

// wantRestored fails the test unless one event says that the copy in team-000 was restored, and from where.
func (s scene) wantRestored() {
	s.t.Helper()
	s.wantEventCount(1, plan.ReasonRestored)
	s.wantNote(plan.ReasonRestored, "Restored from the source platform/settings, because ")
	cm := s.get("team-000")
	e := s.lastEvent(plan.ReasonRestored)
	if e.Regarding != plan.KeyOf(cm) || e.UID != cm.UID || e.Type != corev1.EventTypeNormal {
		s.t.Errorf("got event %v, want one about %v", e, cm)
	}
}

// TestRestoredEventsAreLimited: a client edits 500 copies in a second. The events about their repairs come at the pace
// of their limiter, a hundred at once and twenty a second, and the rest is dropped.
func TestRestoredEventsAreLimited(t *testing.T) {
	t.Parallel()
	const copies, burst, perSecond = 500, 100, 20
	inScene(append(teams(copies, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		for i := range copies {
			s.edit(fmt.Sprintf("team-%03d", i), data("spoilt"))
			time.Sleep(time.Second / copies)
		}
		s.wantCopies(copies, "team-", "value")
		if n := s.countEvents(plan.ReasonRestored); n < burst || n > burst+perSecond+1 {
			t.Errorf("got %d events in a second, want %d and %d more", n, burst, perSecond)
		}
		time.Sleep(time.Minute) // those that wait are sent
		if n := s.countEvents(plan.ReasonRestored); n > burst+perSecond+1+burst {
			t.Errorf("got %d events in the end, want as many more at most as may wait", n)
		}
	})(t)
}

// TestNothingWasRestored: no event Restored tells of the controller's own changes, nor of those that an
// event cannot stop. Cases C22 and C24.
func TestNothingWasRestored(t *testing.T) {
	for name, tc := range map[string]struct {
		edited  bool // before the start
		happens func(scene)
		events  int
	}{
		"the source changes":             {happens: func(s scene) { s.edit("platform", data("other")) }},
		"it was edited before the start": {edited: true},
		"an immutable source is replaced": {happens: func(s scene) {
			s.remove("platform")
			s.write(source(plantest.Immutable, data("other")))
		}},
		"C23 an immutable source is replaced while a finalizer holds the copy": {happens: func(s scene) {
			s.edit("team-000", plantest.Finalizer)
			s.remove("platform")
			s.write(source(plantest.Immutable, data("other")))
			time.Sleep(time.Minute)
			s.edit("team-000", withoutFinalizers)
		}},
		"the namespace is being deleted": {happens: func(s scene) {
			s.Terminate("team-000")
			synctest.Wait()
			s.edit("team-000", data("spoilt"))
		}},
		"a webhook alters the repair": {happens: func(s scene) {
			s.alter(data("altered"))
			s.edit("team-000", data("spoilt"))
		}},
		"a webhook alters a repair that keeps other metadata": {happens: func(s scene) {
			s.alter(data("altered"))
			s.edit("team-000", data("spoilt"), plantest.Annotation("theirs", "kept"))
		}},
		"a quota refuses our own re-creation": {happens: func(s scene) {
			s.refuse(on(rejected("exceeded quota"), creates))
			s.edit("team-000", plantest.Immutable, data("spoilt"))
			time.Sleep(20 * time.Second)
			s.refuse(on[error](nil))
		}},
		"a fight": {events: freeRepairs, happens: func(s scene) {
			for range 3 * freeRepairs {
				s.edit("team-000", data("spoilt"))
				time.Sleep(2 * time.Minute)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			replaced := strings.Contains(name, "an immutable source is replaced")
			src := source()
			if replaced {
				src = source(plantest.Immutable)
			}
			have := copyOf(src, "team-000")
			if tc.edited {
				have.Data["key"] = "spoilt"
			}
			inScene(append(teams(1, "team-"), src, have), func(t *testing.T, s scene) {
				if tc.happens != nil {
					tc.happens(s)
				}
				time.Sleep(time.Minute)
				s.wantEventCount(tc.events, plan.ReasonRestored)
				if replaced {
					s.wantCopy("team-000", "other")
					s.wantMetric(0, "mirror_repairs_total", plan.CauseDeleted)
				}
			})(t)
		})
	}
}

// TestC58RestoreOfADeletedCopy: etcd is restored from a backup before the watch has shown the deletion of a copy. No
// source is left whose fan-out finds it again, and no resync is needed.
func TestC58RestoreOfADeletedCopy(t *testing.T) {
	inScene(teams(1, "team-"), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Minute)
		s.Stall("team-000")
		s.edit("platform", unlabelled)
		before := time.Now()
		s.within(time.Hour, "deletion", func() bool { return s.countCopies("team-", "value") == 0 })
		s.ConfigMaps.Restore(before)
		s.wantCopy("team-000", "value")
		s.Relist()
		time.Sleep(3 * time.Minute)
		s.wantNone("team-000")
		s.wantNote(plan.ReasonExpiring, "1 copy in namespace team-000")
	})(t)
}

// TestC58CopyThatGoesUnseen: the ConfigMap in team-000 goes before the watch has shown it, by a deletion or by a
// restore of etcd. A relist shows the rest, and no event tells of it. The copy is made again without a resync.
func TestC58CopyThatGoesUnseen(t *testing.T) {
	for name, do := range map[string]func(scene){
		"our copy": func(s scene) { s.write(source()) },
		"a foreign object with the label": func(s scene) {
			s.write(plantest.ConfigMap("team-000", "settings", copyLabel))
			s.write(source())
		},
		"our copy, before a restore of etcd": func(s scene) {
			s.ConfigMaps.Rewind(1000000)
			s.write(source())
			synctest.Wait()
			s.ConfigMaps.Rewind(5000)
		},
	} {
		t.Run(name, inScene(teams(1, "team-"), func(t *testing.T, s scene) {
			s.Stall("team-000")
			do(s)
			time.Sleep(100 * time.Millisecond)
			s.remove("team-000")
			time.Sleep(100 * time.Millisecond)
			s.Relist()
			time.Sleep(3 * time.Minute)
			s.wantCopy("team-000", "value")
		}))
	}
}

// TestC36Fight: another client changes the copy back as often as it is restored. It is reported, and it costs a write a
// minute, until that client stops.
func TestC36Fight(t *testing.T) {
	for name, spoil := range map[string]func(scene){
		"edited":  func(s scene) { s.edit("team-000", data("spoilt")) },
		"deleted": func(s scene) { s.remove("team-000") },
	} {
		t.Run(name, inScene(append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
			for range 3600 {
				spoil(s)
				time.Sleep(time.Second)
			}
			if n := s.countWrites("team-000"); n > 90 || n < 60 {
				t.Errorf("got %d writes in an hour, want about one a minute", n)
			}
			s.wantEventCount(1, plan.ReasonFight)
			s.wantMirrored("1 namespace; 1 is blocked (see Fight)")
			s.wantMetric(1, "mirror_copies", "fight")
			s.wantMetric(0, "mirror_copies", "pending")
			time.Sleep(2 * time.Minute)
			s.wantCopy("team-000", "value")
			time.Sleep(20 * time.Minute) // without an edit
			s.wantMirrored("2 namespaces")
		}))
	}
}

// alter has a webhook change each ConfigMap that the controller writes into team-000.
func (s scene) alter(change plantest.Option) {
	s.Hook(func(h *apitest.Hooks) {
		h.Alters = func(c apitest.Call, cm *corev1.ConfigMap) {
			if c.Namespace == "team-000" {
				change(cm)
			}
		}
	})
}

// TestC57AlteredRecreation: a webhook alters a copy that is re-created while the
// watch is late. The copy is repaired without a resync. Of an immutable copy the
// data stays as admission made it, see TestC68AdmissionAndImmutableCopies.
func TestC57AlteredRecreation(t *testing.T) {
	mutable := func(*corev1.ConfigMap) {}
	for name, tc := range map[string]struct{ source, alter plantest.Option }{
		"label": {plantest.Immutable, unlabelled},
		"data":  {mutable, data("altered")},
	} {
		objects := append(teams(1, "team-"), source(plantest.Immutable))
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			time.Sleep(time.Second)
			s.Hook(func(h *apitest.Hooks) { h.Lags = func(string) time.Duration { return 300 * time.Millisecond } })
			s.alter(tc.alter)
			s.remove("platform")
			s.write(source(tc.source, data("new")))
			time.Sleep(2 * time.Second)
			s.alter(func(*corev1.ConfigMap) {})
			time.Sleep(2 * time.Minute)
			s.wantCopy("team-000", "new")
			s.wantMetric(1, "mirror_copies", "synced")
		}))
	}
}

// TestRefusedChangeLeavesTheCopy: the copy stays as it is, and the source tells why.
func TestRefusedChangeLeavesTheCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		kind    plantest.Option // of the source
		verb    string          // of the call that is refused
		refusal error
	}{
		"deletion of a re-creation": {plantest.Immutable, "delete", rejected("no deletions")},
		"update that is too large":  {data("value"), "update", apierrors.NewRequestEntityTooLargeError("a limit")},
	} {
		t.Run(name, inScene(append(teams(1, "team-"), source(tc.kind)), func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			before := s.get("team-000")
			creates := s.CountAll("team-", "create")
			s.refuse(on(tc.refusal, request(tc.verb, "configmaps", "team-000")))
			s.remove("platform")
			s.write(source(tc.kind, data("other")))
			time.Sleep(10 * time.Second)
			s.wantNote(plan.ReasonWriteFailed, tc.refusal.Error())
			if now := s.get("team-000"); now.ResourceVersion != before.ResourceVersion {
				t.Errorf("got the copy %v, want %v", now, before)
			}
			if got := s.CountAll("team-", "create"); got != creates {
				t.Errorf("got %d creates, want none", got-creates)
			}
		}))
	}
}

// TestC68AdmissionAltersACopy that is created, each time: the target is rejected, one event names admission and what it
// altered, also an hour later, and advises nobody to hand the object over. What was created stays. When that ends, and
// an object that is not ours is gone, the copy is made. Case C36.
func TestC68AdmissionAltersACopy(t *testing.T) {
	unlabel, disown := unlabelled, disowned
	for name, tc := range map[string]struct {
		alter plantest.Option
		what  string // in the event
		ours  bool   // still
	}{
		"data":     {data("altered"), "data", true},
		"label":    {unlabel, "label mirror", true},
		"source":   {disown, plan.SourceAnnotation, false},
		"copy":     {plantest.Without(plan.CopyAnnotation), plan.CopyAnnotation, false},
		"instance": {plantest.Without(plan.InstanceAnnotation), plan.InstanceAnnotation, false},
		"label and source, so that the watch does not show it": {
			func(cm *corev1.ConfigMap) { unlabel(cm); disown(cm) }, "label mirror", false},
	} {
		t.Run(name, inScene(teams(2, "team-"), func(t *testing.T, s scene) {
			s.alter(tc.alter)
			s.write(source())
			time.Sleep(time.Minute)
			s.wantCopy("team-001", "value")
			uid := s.get("team-000").UID
			for _, passed := range []time.Duration{time.Minute, time.Hour} {
				before := s.countWrites("team-000")
				time.Sleep(passed)
				s.wantNote(plan.ReasonWriteFailed, "admission", tc.what)
				s.wantEventCount(1, plan.ReasonWriteFailed)
				s.wantEventCount(0, plan.ReasonForeign)
				s.wantMetric(1, "mirror_copies", "rejected")
				if n := s.countWrites("team-000") - before; n > 2*int(passed.Minutes())+2 {
					t.Errorf("got %d tries in %v, want one a minute", n, passed)
				}
			}
			if cm := s.get("team-000"); cm == nil || cm.UID != uid {
				t.Errorf("got %v, want what was created", cm)
			}
			s.alter(func(*corev1.ConfigMap) {})
			if !tc.ours {
				s.remove("team-000")
			}
			s.within(time.Minute, "copy", func() bool { return s.countCopies("team-", "value") == 2 })
			time.Sleep(time.Minute)
			s.wantCopy("team-000", "value")
		}))
	}
}

// TestC72QuotaCountsLate: an immutable source is replaced under a full quota, which counts a deletion late.
// No event tells of a rejection, and the copies are back as soon as the quota is counted.
func TestC72QuotaCountsLate(t *testing.T) {
	inScene(append(teams(2, "team-"), source(plantest.Immutable)), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		var mu sync.Mutex
		deleted := map[string]time.Time{}
		s.refuse(func(c apitest.Call) error {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case c.Verb == "delete":
				deleted[c.Namespace] = time.Now()
			case c.Verb == "create" && time.Since(deleted[c.Namespace]) < 800*time.Millisecond:
				return rejected("exceeded quota")
			}
			return nil
		})
		s.remove("platform")
		s.write(source(plantest.Immutable, data("new")))
		s.within(4*time.Second, "copy in every namespace", func() bool { return s.countCopies("team-", "new") == 2 })
		time.Sleep(time.Minute)
		s.wantEventCount(0, plan.ReasonWriteFailed)
	})(t)
}

// TestC76FinalizerOnACopy: a copy that a finalizer keeps blocks its own target. The event names the finalizer, all
// other targets follow, and the copy is made when it is gone.
func TestC76FinalizerOnACopy(t *testing.T) {
	for name, bySource := range map[string]bool{"deleted by a tenant": false, "deleted by us, and wanted again": true} {
		t.Run(name, inScene(append(teams(10, "team-"), source()), func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.edit("team-000", plantest.Finalizer)
			if bySource {
				s.optOut("team-000")
				time.Sleep(time.Minute)
				s.setNamespace("team-000")
			} else {
				s.remove("team-000")
			}
			for _, content := range []string{"one", "two"} {
				s.edit("platform", data(content))
				time.Sleep(time.Minute)
				s.wantMirrored("9 namespaces; 1 is blocked (see Foreign)")
				s.wantCopies(9, "team-", content)
			}
			s.wantNote(plan.ReasonForeign, s.get("team-000").Finalizers[0])
			s.edit("team-000", withoutFinalizers)
			time.Sleep(time.Second)
			s.wantCopy("team-000", "two")
		}))
	}
}

// TestC71OthersMetadata: a copy with other people's metadata is repaired in
// place, and that stays: one read, one update. If the object would be too large
// with it, their labels and annotations go, and nothing else.
func TestC71OthersMetadata(t *testing.T) {
	note := plantest.Annotation("note", strings.Repeat("x", 200<<10))
	edited, label := data("spoilt"), plantest.Label("theirs", "x")
	owned := func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}}
		cm.Finalizers = []string{"example.com/a", "example.com/b"}
	}
	etcd := apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
	message := apierrors.NewInternalError(errors.New("rpc error: trying to send message larger than max (1 vs. 0)"))
	for name, tc := range map[string]struct {
		edits          []plantest.Option
		reads, updates int
		keeps          bool  // their labels and annotations
		refused        error // the first update
	}{
		"nothing":                 {[]plantest.Option{edited}, 0, 1, true, nil},
		"a label":                 {[]plantest.Option{edited, label}, 1, 1, true, nil},
		"much":                    {[]plantest.Option{edited, label, note, owned}, 1, 1, true, nil},
		"finalizers, owners":      {[]plantest.Option{edited, owned}, 1, 1, true, nil},
		"no label but theirs":     {[]plantest.Option{plantest.Without(plan.ManagedByLabel), label}, 1, 1, true, nil},
		"all that is possible":    {[]plantest.Option{full, label, owned}, 1, 2, false, nil},
		"too large for etcd":      {[]plantest.Option{edited, label, owned}, 1, 2, false, etcd},
		"too large for a message": {[]plantest.Option{edited, label}, 1, 2, false, message},
		"too large for a request": {[]plantest.Option{edited, label}, 1, 2, false,
			apierrors.NewRequestEntityTooLargeError("")},
		"too large for a policy": {[]plantest.Option{edited, label}, 2, 2, true,
			rejected("values larger than max of the team")},
		"invalid by a policy":   {[]plantest.Option{edited, label}, 2, 2, true, invalid()},
		"forbidden by a policy": {[]plantest.Option{edited, label}, 2, 2, true, rejected("policy")},
	} {
		t.Run(name, inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			before := s.get("team-000")
			reads, updates := s.CountAll("team-", "get"), s.CountAll("team-", "update")
			s.refuse(func(c apitest.Call) error {
				if c.Verb == "update" && s.CountAll("team-", "update") == updates+1 {
					return tc.refused
				}
				return nil
			})
			s.edit("team-000", tc.edits...)
			theirs := s.get("team-000").ObjectMeta
			time.Sleep(time.Minute)
			synctest.Wait()
			got, want := s.get("team-000"), before.DeepCopy()
			want.OwnerReferences, want.Finalizers, want.ResourceVersion = theirs.OwnerReferences, theirs.Finalizers,
				got.ResourceVersion
			if tc.keeps {
				maps.Copy(theirs.Labels, want.Labels)
				maps.Copy(theirs.Annotations, want.Annotations)
				want.Labels, want.Annotations = theirs.Labels, theirs.Annotations
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %.2000v\nwant %.2000v", got, want)
			}
			r, u := s.CountAll("team-", "get")-reads, s.CountAll("team-", "update")-updates
			if r != tc.reads || u != tc.updates {
				t.Errorf("got %d reads and %d updates, want %d and %d", r, u, tc.reads, tc.updates)
			}
		}))
	}
}

// invalid is the API server's answer to a write that a policy refuses by its
// default reason. Nothing in it is too long.
func invalid() error {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
	cause := field.Forbidden(field.NewPath("metadata", "labels"), "policy")
	return apierrors.NewInvalid(kind, "settings", field.ErrorList{cause})
}

// TestC71MetadataWrittenMeanwhile: somebody changes a copy between the event, the
// read before the repair, and the repair itself.
func TestC71MetadataWrittenMeanwhile(t *testing.T) {
	label := plantest.Label("theirs", "x")
	for name, tc := range map[string]struct {
		before         string // the verb of the request that the change comes before
		times          int
		change         plantest.Option
		reads, updates int
	}{
		"metadata, before the read":            {"get", 1, label, 1, 1},
		"metadata, before the update":          {"update", 1, label, 2, 2},
		"metadata, before two updates":         {"update", 2, label, 3, 3},
		"our own keys, before the read":        {"get", 1, plantest.Without(plan.ChecksumAnnotation), 2, 1},
		"that it is our copy, before the read": {"get", 1, plantest.Without(plan.CopyAnnotation), 1, 0},
	} {
		t.Run(name, inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			s.edit("team-000", plantest.Label("first", "x"))
			synctest.Wait()
			reads, updates := s.CountAll("team-", "get"), s.CountAll("team-", "update")
			left := tc.times
			s.beforeCall(func(c apitest.Call) {
				if c.Verb == tc.before && c.Namespace == "team-000" && left > 0 {
					left--
					s.edit("team-000", tc.change, plantest.Annotation("count", strconv.Itoa(left)))
				}
			})
			s.edit("team-000", data("spoilt"))
			time.Sleep(time.Minute)
			s.beforeCall(nil)
			synctest.Wait()
			if got := s.get("team-000"); tc.updates == 0 && got.Data["key"] != "spoilt" {
				t.Errorf("got %v, want it released", got)
			} else if tc.updates > 0 {
				s.wantCopy("team-000", "value")
				if got.Annotations["count"] != "0" || got.Labels["first"] != "x" {
					t.Errorf("got %v, want their metadata kept", got)
				}
			}
			r, u := s.CountAll("team-", "get")-reads, s.CountAll("team-", "update")-updates
			if tc.updates > 0 && r != tc.reads || u != tc.updates {
				t.Errorf("got %d reads and %d updates, want %d and %d", r, u, tc.reads, tc.updates)
			}
		}))
	}
}

// full fills the annotations of a copy in place of our checksum, as far as the API server takes them.
func full(cm *corev1.ConfigMap) {
	delete(cm.Annotations, plan.ChecksumAnnotation)
	free := 256<<10 - len("note")
	for k, v := range cm.Annotations {
		free -= len(k) + len(v)
	}
	cm.Annotations["note"] = strings.Repeat("x", free)
}
