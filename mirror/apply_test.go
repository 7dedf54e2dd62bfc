package mirror

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC71OthersMetadata: a copy with other people's metadata is repaired in place, and that stays: one patch. Where the
// object would be too large with it, their labels and annotations go, and nothing else.
func TestC71OthersMetadata(t *testing.T) {
	note := plantest.Annotation("note", strings.Repeat("x", 200<<10))
	edited, label := plantest.Data("key", "spoilt"), plantest.Label("theirs", "x")
	owned := func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}}
		cm.Finalizers = []string{"example.com/a", "example.com/b"}
	}
	etcd := apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
	message := apierrors.NewInternalError(errors.New("rpc error: trying to send message larger than max (1 vs. 0)"))
	for name, tc := range map[string]struct {
		edits            []plantest.Option
		patches, updates int
		keeps            bool  // their labels and annotations
		refused          error // each patch
	}{
		"nothing":                 {[]plantest.Option{edited}, 0, 1, true, nil},
		"a label":                 {[]plantest.Option{edited, label}, 1, 0, true, nil},
		"much":                    {[]plantest.Option{edited, label, note, owned}, 1, 0, true, nil},
		"finalizers, owners":      {[]plantest.Option{edited, owned}, 1, 0, true, nil},
		"no label but theirs":     {[]plantest.Option{plantest.Without(plan.ManagedByLabel), label}, 1, 0, true, nil},
		"all that is possible":    {[]plantest.Option{full, label, owned}, 1, 1, false, nil},
		"too large for etcd":      {[]plantest.Option{edited, label, owned}, 1, 1, false, etcd},
		"too large for a message": {[]plantest.Option{edited, label}, 1, 1, false, message},
		"too large for a request": {[]plantest.Option{edited, label}, 1, 1, false,
			apierrors.NewRequestEntityTooLargeError("")},
	} {
		runSubscene(t, name, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			before := s.get("team-000")
			patches, updates := s.CountAll("team-", "patch"), s.CountAll("team-", "update")
			if tc.refused != nil {
				s.refuse(on(tc.refused, apitest.Call{Verb: "patch"}))
			}
			s.edit("team-000", tc.edits...)
			theirs := s.get("team-000").ObjectMeta
			time.Sleep(time.Minute)
			synctest.Wait()
			got, want := s.get("team-000"), copyOf(source(), "team-000")
			want.ObjectMeta.UID, want.CreationTimestamp = before.UID, before.CreationTimestamp
			want.OwnerReferences, want.Finalizers = theirs.OwnerReferences, theirs.Finalizers
			for _, o := range tc.edits {
				if tc.keeps {
					o(want)
				}
			}
			want = repaired(want)
			want.ResourceVersion = got.ResourceVersion
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %.2000v\nwant %.2000v", got, want)
			}
			p, u := s.CountAll("team-", "patch")-patches, s.CountAll("team-", "update")-updates
			if p != tc.patches || u != tc.updates {
				t.Errorf("got %d patches and %d updates, want %d and %d", p, u, tc.patches, tc.updates)
			}
		})
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

// repaired returns a copy with our data, labels and annotations restored.
func repaired(cm *corev1.ConfigMap) *corev1.ConfigMap {
	want := copyOf(source(), cm.Namespace)
	cm.Data, cm.Immutable = want.Data, nil
	for k, v := range want.Labels {
		cm.Labels[k] = v
	}
	for k, v := range want.Annotations {
		cm.Annotations[k] = v
	}
	return cm
}
