package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// refusedBy is the API server's answer where this policy refuses a ConfigMap.
func refusedBy(policy string) error {
	return apierrors.NewForbidden(corev1.Resource("configmaps"), probeName,
		errors.New("ValidatingAdmissionPolicy '"+policy+"' with binding '"+policy+"' denied request: no"))
}

// TestSelfCheck asks for an unmarked ConfigMap in the namespace of the process, and for a copy in one that is no target.
func TestSelfCheck(t *testing.T) {
	policy := refusedBy("mirror-controller-confined")
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), probeName, errors.New("no permission"))
	own, elsewhere := plantest.Namespace("mirror-system"), plantest.Namespace("platform")
	for name, tc := range map[string]struct {
		namespaces []runtime.Object
		unmarked   error
		copy       error
		want       string
	}{
		"confined":                     {[]runtime.Object{own, elsewhere}, policy, policy, "1"},
		"under another name":           {[]runtime.Object{own, elsewhere}, refusedBy("eu-mirror-controller-confined"), policy, "1"},
		"with a suffix":                {[]runtime.Object{own, elsewhere}, policy, refusedBy("mirror-controller-confined-blue"), "1"},
		"no other namespace":           {[]runtime.Object{own, plantest.Namespace("team-a"), plantest.Terminating("gone")}, policy, nil, "1"},
		"no policy":                    {[]runtime.Object{own, elsewhere}, nil, nil, "0"},
		"of other prefixes":            {[]runtime.Object{own, elsewhere}, policy, nil, "0"},
		"another policy":               {[]runtime.Object{own, elsewhere}, refusedBy("require-labels"), policy, ""},
		"no permission":                {[]runtime.Object{own, elsewhere}, forbidden, forbidden, ""},
		"the API server is away":       {[]runtime.Object{own, elsewhere}, errAway, policy, ""},
		"the API server is away later": {[]runtime.Object{own, elsewhere}, policy, errAway, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := func() *apitest.Server {
				s := apitest.NewServer(tc.namespaces...)
				s.Hook(func(h *apitest.Hooks) {
					h.Refuses = func(c apitest.Call) error {
						return map[apitest.Call]error{request("create", "configmaps", own.Name): tc.unmarked, request("create", "configmaps", elsewhere.Name): tc.copy}[c]
					}
				})
				return s
			}
			alone(t, server, func(o *Options) { o.Namespace = own.Name }, func(t *testing.T, s scene) {
				synctest.Wait()
				if got := s.confined(); got != "" {
					t.Errorf("at once: got mirror_confined %q, want none: policies may not be in effect yet", got)
				}
				time.Sleep(selfCheckDelay + time.Second)
				if got := s.confined(); got != tc.want {
					t.Errorf("got mirror_confined %q, want %q", got, tc.want)
				}
				once := s.CountAll("", "create")
				next := selfCheckRetry
				if tc.want == "1" {
					next = selfCheckPeriod
				}
				time.Sleep(next - 2*time.Second)
				if n := s.CountAll("", "create"); n != once {
					t.Errorf("got %d probes within %v, want %d", n, next, once)
				}
				s.refuse(func(apitest.Call) error { return policy })
				time.Sleep(2 * time.Second)
				if n := s.CountAll("", "create"); n == once {
					t.Errorf("got no more probes after %v", next)
				}
				if got := s.confined(); got != "1" {
					t.Errorf("%v later: got mirror_confined %q, want 1", next, got)
				}
			})
		})
	}
}

// TestSelfCheckLogsOnceAnHour while it asks once a minute.
func TestSelfCheckLogsOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, apitest.NewServer(), func(o *Options) { o.Namespace = "mirror-system" })
		var out logBuffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), logger), 3*time.Hour)
		defer stop()
		s.noted(s.controller.Run(ctx, Alone(ctx)))
		if lines, probes := strings.Count(out.String(), "No admission policy"), s.CountAll("", "create"); lines != 3 || probes < 179 {
			t.Errorf("got %d lines in the log and %d probes in three hours, want 3 and one a minute", lines, probes)
		}
	})
}

// TestNoSelfCheck without the namespace of the process, or before it leads.
func TestNoSelfCheck(t *testing.T) {
	cluster(t, teams(3, "team-"), func(t *testing.T, s scene) {
		time.Sleep(2 * selfCheckPeriod)
		if n := s.CountAll("", "create"); n != 0 || s.confined() != "" {
			t.Errorf("got %d probes and mirror_confined %q, want none", n, s.confined())
		}
	})
}

// confined returns the value of mirror_confined; empty if it is absent.
func (s scene) confined() string {
	families, err := s.registry.Gather()
	s.noted(err)
	for _, f := range families {
		if f.GetName() == "mirror_confined" && len(f.GetMetric()) > 0 {
			return map[float64]string{0: "0", 1: "1"}[f.GetMetric()[0].GetGauge().GetValue()]
		}
	}
	return ""
}
