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

// TestConfinementIsProbed asks for an unmarked ConfigMap in the namespace of the process, and for a copy in one that is
// no target.
func TestConfinementIsProbed(t *testing.T) {
	policy := refusedBy("mirror-controller-confined")
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), probeName, errors.New("no permission"))
	own, elsewhere := plantest.Namespace("mirror-system"), plantest.Namespace("platform")
	all := []runtime.Object{own, elsewhere}
	targets := []runtime.Object{own, plantest.Namespace("team-a"), plantest.Terminating("gone")}
	for name, tc := range map[string]struct {
		namespaces []runtime.Object
		unmarked   error
		copy       error
		want       float64 // -1: absent
	}{
		"confined":                     {all, policy, policy, 1},
		"under another name":           {all, refusedBy("eu-mirror-controller-confined"), policy, 1},
		"with a suffix":                {all, policy, refusedBy("mirror-controller-confined-blue"), 1},
		"no other namespace":           {targets, policy, nil, 1},
		"no policy":                    {all, nil, nil, 0},
		"of other prefixes":            {all, policy, nil, 0},
		"another policy":               {all, refusedBy("require-labels"), policy, -1},
		"no permission":                {all, forbidden, forbidden, -1},
		"the API server is away":       {all, errAway, policy, -1},
		"the API server is away later": {all, policy, errAway, -1},
	} {
		t.Run(name, func(t *testing.T) {
			server := func() *apitest.Server {
				s := apitest.NewServer(tc.namespaces...)
				s.Hook(func(h *apitest.Hooks) {
					h.Refuses = func(c apitest.Call) error {
						return map[apitest.Call]error{request("create", "configmaps", own.Name): tc.unmarked,
							request("create", "configmaps", elsewhere.Name): tc.copy}[c]
					}
				})
				return s
			}
			alone(t, server, func(o *Options) { o.Namespace = own.Name }, func(t *testing.T, s scene) {
				synctest.Wait()
				if got := s.value("mirror_confined"); got != -1 {
					t.Errorf("at once: got mirror_confined %v, want none: policies may not be in effect yet", got)
				}
				time.Sleep(selfCheckDelay + time.Second)
				if got := s.value("mirror_confined"); got != tc.want {
					t.Errorf("got mirror_confined %v, want %v", got, tc.want)
				}
				once := s.CountAll("", "create")
				time.Sleep(selfCheckPeriod - 2*time.Second)
				if n := s.CountAll("", "create"); n != once {
					t.Errorf("got %d probes within %v, want %d", n, selfCheckPeriod, once)
				}
				s.refuse(on(policy, anyCall))
				time.Sleep(2 * time.Second)
				if got := s.value("mirror_confined"); got != 1 || s.CountAll("", "create") == once {
					t.Errorf("%v later: got mirror_confined %v, want 1 by another probe", selfCheckPeriod, got)
				}
			})
		})
	}
}

// TestC60ConfinementLost: a policy that is switched off is known within ten minutes, by the metric and one line of
// the log an hour, and within a minute if it refused a write before. If it is back, that is known, and the next loss
// is said again.
func TestC60ConfinementLost(t *testing.T) {
	policy, own := refusedBy("mirror-controller-confined"), request("create", "configmaps", "mirror-system")
	confined := on(policy, own, request("create", "configmaps", "platform"))
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, having(append(teams(1, "team-"), plantest.Namespace(own.Namespace))...)(),
			func(o *Options) { o.Namespace = own.Namespace })
		s.refuse(confined)
		var out logBuffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan error)
		go func() { ended <- s.controller.Run(ctx, Alone(ctx)) }()
		expect := func(what string, confined float64, lines int) {
			t.Helper()
			if got, said := s.value("mirror_confined"), strings.Count(out.String(), "No admission policy"); got != confined || said != lines {
				t.Errorf("%s: got mirror_confined %v and %d lines, want %v and %d", what, got, said, confined, lines)
			}
		}
		time.Sleep(time.Minute)
		expect("at first", 1, 0)
		s.refuse(on[error](nil))
		time.Sleep(10 * time.Minute)
		expect("switched off", 0, 1)
		s.refuse(confined)
		time.Sleep(10 * time.Minute)
		expect("on again", 1, 1)
		s.refuse(on(policy, request("create", "configmaps", "team-000")))
		s.write(source())
		synctest.Wait()
		s.refuse(on[error](nil))
		time.Sleep(selfCheckGap)
		expect("off after a refusal", 0, 2)
		time.Sleep(150 * time.Minute)
		expect("two and a half hours later", 0, 4)
		stop()
		s.noted(<-ended)
	})
}
