package mirror

import (
	"context"
	"strings"
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
	pages  int
	data   string
	limits []int64
	expire int // the page at which the continue token is too old; 0: none
}

func (p *pagedConfigMaps) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	p.limits = append(p.limits, o.Limit)
	if len(p.limits) == p.expire {
		return nil, apierrors.NewResourceExpired("too old")
	}
	list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*plantest.Marked("team-a", "settings", plantest.Data("key", p.data))}}
	if len(p.limits) < p.pages {
		list.Continue = "more"
	}
	return list, nil
}

// TestPages: pages grow while they are small, are stripped at once, and never become one whole list.
func TestPages(t *testing.T) {
	c := &caches{rules: teamRules()}
	for name, tc := range map[string]struct {
		data   string
		expire int
		want   []int64
	}{
		"small":   {"value", 0, []int64{25, 50, 100, 200, 400, 500, 500}},
		"large":   {strings.Repeat("x", pageBytes), 0, []int64{25, 25, 25, 25, 25, 25, 25}},
		"expired": {"value", 3, []int64{25, 50, 100}},
	} {
		p := &pagedConfigMaps{pages: 7, data: tc.data, expire: tc.expire}
		list, err := c.list(t.Context(), p, metav1.ListOptions{ResourceVersion: "0"})
		if got := p.limits; len(got) != len(tc.want) || apierrors.IsResourceExpired(err) != (tc.expire > 0) {
			t.Errorf("%s: got limits %v, error %v, want %v", name, got, err, tc.want)
			continue
		}
		for i, limit := range p.limits {
			if limit != tc.want[i] {
				t.Errorf("%s: got limits %v, want %v", name, p.limits, tc.want)
				break
			}
		}
		if err != nil {
			continue
		}
		items, err := meta.ExtractList(list)
		if err != nil || len(items) != 7 || items[6].(*corev1.ConfigMap).Data != nil {
			t.Errorf("%s: got %d objects, error %v, want 7 without payload", name, len(items), err)
		}
	}
}

// TestSourceBytes counts keys and values of sources, and no copies.
func TestSourceBytes(t *testing.T) {
	src := plantest.Source("platform", "settings", plantest.Data("key", "value"), plantest.BinaryData("bin", 1, 2))
	cluster(t, append(teams(3, "team-"), src), func(t *testing.T, s scene) {
		if n := s.value("mirror_source_bytes"); n != float64(len("key")+len("value")+len("bin")+2) {
			t.Errorf("got %v bytes, want 13", n)
		}
	})
}
