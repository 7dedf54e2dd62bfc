package cache

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// pagedConfigMaps answers lists in pages, as an API server does.
type pagedConfigMaps struct {
	typedcorev1.ConfigMapInterface
	pages, expire int // the page whose continue token is too old; 0: none
	limits        []int64
	selectors     []string
}

func (p *pagedConfigMaps) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	p.limits = append(p.limits, o.Limit)
	p.selectors = append(p.selectors, o.LabelSelector)
	if len(p.limits) == p.expire {
		return nil, apierrors.NewResourceExpired("too old")
	}
	copied := plantest.Marked("team-a", "settings", plantest.Data("key", "value"))
	list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*copied}}
	if len(p.limits) < p.pages {
		list.Continue = "more"
	}
	return list, nil
}

// TestListsComeInPages: pages are small, are stripped at once, and never become one whole list.
func TestListsComeInPages(t *testing.T) {
	c := &Cache{rules: teamRules()}
	for name, tc := range map[string]struct {
		expire int
		want   []int64
	}{
		"all":     {0, []int64{pageSize, pageSize, pageSize, pageSize}},
		"expired": {3, []int64{pageSize, pageSize, pageSize}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pagedConfigMaps{pages: 4, expire: tc.expire}
			list, err := list(t.Context(), p, "mirror", c.stripConfigMap)
			if !slices.Equal(p.limits, tc.want) || apierrors.IsResourceExpired(err) != (tc.expire > 0) {
				t.Errorf("got limits %v, error %v, want %v", p.limits, err, tc.want)
			}
			if other := slices.IndexFunc(p.selectors, func(s string) bool { return s != "mirror" }); other >= 0 {
				t.Errorf("got the selectors %q, want only what is mirrored", p.selectors)
			}
			if err != nil {
				return
			}
			items, err := meta.ExtractList(list)
			if err != nil || len(items) != 4 || items[3].(*corev1.ConfigMap).Data != nil {
				t.Errorf("got %d objects, error %v, want 4 without payload", len(items), err)
			}
		})
	}
}
