package mirror

import (
	"context"
	"regexp"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// selfCheckDelay is the time before the first self-check. A policy takes effect a second or more after it was made,
	// and it may be installed together with the controller.
	selfCheckDelay = 10 * time.Second
	// selfCheckPeriod is the time between two self-checks: an alert about a lost policy fires within ten minutes.
	selfCheckPeriod = 5 * time.Minute
	// selfCheckGap is the time to the next self-check if the policy refused a write: a setting of it may be missing.
	selfCheckGap = time.Minute
	// selfCheckSpacing is the least time between two log lines while nothing confines the account.
	selfCheckSpacing = time.Hour
	// probeName is the name of the objects in the dry-run requests of a self-check.
	probeName = "mirror-controller-self-check"
)

// confinedPolicy matches the refusal of the policy in deploy/components/admission/confined, whatever a kustomization
// adds to its name.
var confinedPolicy = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*confined[^']*'`)

// RefusedAsConfined reports whether err is the refusal of the policy that confines the controller.
func RefusedAsConfined(err error) bool {
	return apierrors.IsForbidden(err) && confinedPolicy.MatchString(err.Error())
}

// Probes returns objects that a confined controller cannot create: an unmarked ConfigMap in its own namespace, and a
// ConfigMap with every mark of a copy in a namespace that is no target. elsewhere is empty if there is no such
// namespace.
func Probes(rules *plan.Rules, home, elsewhere string) []*corev1.ConfigMap {
	unmarked := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: probeName}}
	if elsewhere == "" {
		return []*corev1.ConfigMap{unmarked}
	}
	return []*corev1.ConfigMap{unmarked, rules.Desired(rules.ParseSource(unmarked), elsewhere, nil)}
}

// selfCheck asks the API server whether the admission policy confines the account of this process. A setting of an
// installation may switch the policy off, and nothing reports that. Each probe is a write, by server-side dry-run, that
// the policy must refuse.
type selfCheck struct {
	client    kubernetes.Interface
	rules     *plan.Rules
	cache     *cache.Cache
	namespace string // of the process
	confined  *metrics.GaugeVec
	refused   atomic.Bool // the policy refused a write since the last check

	checked time.Time // the begin of the last check
	logged  time.Time // the last log line about an account that nothing confines; zero: the account was confined since
}

func newSelfCheck(client kubernetes.Interface, rules *plan.Rules, c *cache.Cache, namespace string) *selfCheck {
	confined := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "mirror_confined",
		Help:           "1 if an admission policy confines the account of the controller, 0 if none does, absent if not known.",
		StabilityLevel: metrics.STABLE,
	}, nil)
	return &selfCheck{client: client, rules: rules, cache: c, namespace: namespace, confined: confined}
}

// note records that the policy refused a write, if err is such a refusal.
func (s *selfCheck) note(err error) {
	if RefusedAsConfined(err) {
		s.refused.Store(true)
	}
}

// work checks after selfCheckDelay and then every selfCheckPeriod, until ctx ends, and sooner if the policy refused a
// write.
func (s *selfCheck) work(ctx context.Context) {
	if s.namespace == "" {
		return
	}
	for wait := selfCheckDelay; sleep(ctx, wait); wait = selfCheckGap {
		if s.refused.Swap(false) || time.Since(s.checked) >= selfCheckPeriod {
			s.checked = time.Now()
			s.check(ctx)
		}
	}
}

// check sets the metric by the answers to the probes.
func (s *selfCheck) check(ctx context.Context) {
	probes := Probes(s.rules, s.namespace, s.outsideTargets())
	refused := 0
	for _, probe := range probes {
		switch err := s.create(ctx, probe); {
		case err == nil:
			s.confined.WithLabelValues().Set(0)
			if time.Since(s.logged) >= selfCheckSpacing {
				s.logged = time.Now()
				klog.FromContext(ctx).Error(nil, "No admission policy confines this account, so it can write any ConfigMap. "+
					"Install deploy/components/admission, or check the label, the subjects and the annotations of its "+
					"ClusterRoleBinding",
					"allowed", "create a ConfigMap", "namespace", probe.Namespace)
			}
			return
		case RefusedAsConfined(err):
			refused++
		default:
			klog.FromContext(ctx).V(2).Info("Cannot determine whether an admission policy confines this account",
				"err", clipError(err))
		}
	}
	if refused < len(probes) {
		s.confined.Reset()
		return
	}
	s.confined.WithLabelValues().Set(1)
	s.logged = time.Time{}
}

func (s *selfCheck) create(ctx context.Context, cm *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.client.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager,
	})
	return err
}

// outsideTargets returns the first namespace, but for that of the process, whose name makes it no target; empty if
// every namespace is a target by its name.
func (s *selfCheck) outsideTargets() (first string) {
	for ns := range s.cache.Namespaces() {
		isOutside := ns.Name != s.namespace && !s.rules.AllowsTarget(ns.Name) && !plan.Terminating(ns)
		if isOutside && (first == "" || ns.Name < first) {
			first = ns.Name
		}
	}
	return first
}

// sleep returns false if ctx ends before the time is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
