package cache

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/time/rate"
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
	copied := plantest.Marked("team-a", "settings", plantest.Data("key", p.data))
	list := &corev1.ConfigMapList{Items: []corev1.ConfigMap{*copied}}
	if len(p.limits) < p.pages {
		list.Continue = "more"
	}
	return list, nil
}

// TestListsComeInPages: pages grow while they are small, are stripped at once, and never become one whole list.
func TestListsComeInPages(t *testing.T) {
	c := &Cache{rules: teamRules()}
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

// TestWatchThatEndsHasNotFailed: a watch that ends as watches do has not failed, nor has one that is stopped.
func TestWatchThatEndsHasNotFailed(t *testing.T) {
	failed := 0
	handler := watchErrorHandler(namespaces, &rate.Sometimes{}, func(resource string) {
		if failed++; resource != "namespaces" {
			t.Errorf("got a failed watch of %s, want namespaces", resource)
		}
	})
	handler(t.Context(), nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "", errors.New("no watch")))
	handler(t.Context(), nil, errors.New("away"))
	gone := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: 410}}
	for _, ends := range []error{apierrors.NewResourceExpired("too old"), gone, io.EOF, io.ErrUnexpectedEOF} {
		handler(t.Context(), nil, ends)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	handler(stopped, nil, errors.New("away"))
	if failed != 2 {
		t.Errorf("got %d failures, want 2", failed)
	}
}
