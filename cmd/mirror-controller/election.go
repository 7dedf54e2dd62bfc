package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// electionOptions are the flags of the leader election.
type electionOptions struct {
	enabled                                   bool
	leaseDuration, renewDeadline, retryPeriod time.Duration
	name, namespace                           string // of the Lease
}

// newElectionOptions returns the defaults of Kubernetes' own components. A standby reads the Lease every 1 to 2.2 retry
// periods, and so takes over within the promised 5 s after a release.
func newElectionOptions() electionOptions {
	return electionOptions{
		leaseDuration: 15 * time.Second,
		renewDeadline: 10 * time.Second,
		retryPeriod:   2 * time.Second,
		name:          program,
	}
}

func (o *electionOptions) bind(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "leader-elect", o.enabled,
		"Write only while holding a Lease. Several replicas can run, and one of them writes.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration,
		"Time after which another replica can take a Lease that was not renewed. In whole seconds, and more than the "+
			"renew deadline plus the retry period.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", o.renewDeadline,
		"Time for which the leader tries to renew the Lease before it stops writing and exits.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", o.retryPeriod,
		"Time between two attempts to acquire or renew the Lease. A standby tries every 1 to 2.2 times this period.")
	fs.StringVar(&o.name, "leader-elect-resource-name", o.name,
		"Name of the Lease. All replicas of an installation use the same name.")
	fs.StringVar(&o.namespace, "leader-elect-resource-namespace", o.namespace,
		"Namespace of the Lease. Default: the namespace of the pod.")
}

// podNamespaceFile holds the namespace of a pod.
var podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// complete fills in the namespace of the Lease, and returns every error in the options, joined.
func (o *electionOptions) complete() error {
	wrong := o.checkTimes()
	if len(validation.IsDNS1123Subdomain(o.name)) > 0 {
		wrong = append(wrong, wrongValue("--leader-elect-resource-name", o.name,
			"must be the name of a Lease: lower-case letters, digits, '-' and '.'"))
	}
	if o.enabled && o.namespace == "" {
		content, _ := os.ReadFile(podNamespaceFile) // outside a pod there is none
		if o.namespace = strings.TrimSpace(string(content)); o.namespace == "" {
			wrong = append(wrong, errors.New("--leader-elect-resource-namespace: required with --leader-elect outside a pod: "+
				"give the namespace of the Lease"))
		}
	} else if o.namespace != "" && len(validation.IsDNS1123Label(o.namespace)) > 0 {
		wrong = append(wrong, wrongValue("--leader-elect-resource-namespace", o.namespace, "must be the name of a namespace"))
	}
	return errors.Join(wrong...)
}

// checkTimes returns an error for each duration that is wrong.
func (o *electionOptions) checkTimes() (wrong []error) {
	bad := func(is bool, flag string, value time.Duration, want string, args ...any) {
		if is {
			wrong = append(wrong, wrongValue("--leader-elect-"+flag, value.String(), fmt.Sprintf(want, args...)))
		}
	}
	inSeconds := o.leaseDuration >= time.Second && o.leaseDuration%time.Second == 0
	bad(!inSeconds, "lease-duration", o.leaseDuration, "must be 1s or more, in whole seconds, such as 15s")
	// The elector waits a retry period, and then tries until the deadline. A term must not outlast the Lease.
	term := o.renewDeadline + o.retryPeriod
	bad(inSeconds && o.leaseDuration <= term, "lease-duration", o.leaseDuration,
		"must be more than --leader-elect-renew-deadline=%v plus --leader-elect-retry-period=%v, such as %v",
		o.renewDeadline, o.retryPeriod, term.Truncate(time.Second)+time.Second)
	bad(o.renewDeadline <= 0, "renew-deadline", o.renewDeadline, "must be more than 0, such as 10s")
	bad(o.retryPeriod <= 0, "retry-period", o.retryPeriod, "must be more than 0, such as 2s")
	jittered := time.Duration(leaderelection.JitterFactor * float64(o.retryPeriod))
	bad(o.renewDeadline > 0 && jittered >= o.renewDeadline, "retry-period", o.retryPeriod,
		"1.2 times it must be less than --leader-elect-renew-deadline=%v, such as %v", o.renewDeadline, o.renewDeadline/5)
	return wrong
}

// lock returns the lock that the options describe, under an identity that no other process has. A request takes half
// of the renew deadline at most, and closes its connection then: with HTTP/2, other requests would keep a dead one.
func (o *electionOptions) lock(config *rest.Config) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent += " leader-election"
	config.NextProtos = []string{"http/1.1"}
	config.Timeout = o.renewDeadline / 2
	client, err := coordinationv1.NewForConfig(config)
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, err
}

// election acquires a Lease and renews it. It is the lock of its elector.
type election struct {
	resourcelock.Interface
	elector *leaderelection.LeaderElector
	begun   chan context.Context
	cancel  context.CancelFunc // ends it
}

// newElection returns an election of which the watchdog knows.
func (o *electionOptions) newElection(lock resourcelock.Interface, watchdog *leaderelection.HealthzAdaptor) (
	*election, error) {
	e := &election{Interface: lock, begun: make(chan context.Context, 1)}
	var err error
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          e,
		LeaseDuration: o.leaseDuration,
		RenewDeadline: o.renewDeadline,
		RetryPeriod:   o.retryPeriod,
		Name:          program, // a label of the metrics, whatever the Lease is called
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { e.begun <- term },
			OnStoppedLeading: func() {}, // the context of the term ends as well
			OnNewLeader: func(identity string) {
				if identity != "" && identity != lock.Identity() {
					klog.Background().Info("Standing by", "leader", identity)
				}
			},
		},
		// Not ReleaseOnCancel: it would also release the Lease after a failed renewal, while writes are in flight, and after
		// a pause it could release that of the next leader.
	})
	if err == nil {
		watchdog.SetLeaderElection(e.elector)
	}
	return e, err
}

// Get ends a term as soon as the Lease has another holder, or has expired while the process stood still: the elector
// would go on until the renew deadline.
func (e *election) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := e.elector.Check(0); err != nil {
		e.cancel()
		return nil, nil, err
	}
	record, raw, err := e.Interface.Get(ctx)
	if err == nil && e.elector.IsLeader() && record.HolderIdentity != e.Identity() {
		e.cancel()
		return nil, nil, fmt.Errorf("the lease has another holder: %q", record.HolderIdentity)
	}
	return record, raw, err
}

const (
	readyPeriod    = 10 * time.Millisecond // the time between two checks whether the caches are full
	releaseRetry   = 100 * time.Millisecond
	releaseTimeout = 5 * time.Second
)

// run calls work, which writes while this process leads, and returns its error. The election begins when ready returns
// true: a leader without full caches would block the Lease. run gives the Lease back when work resigns or returns, and
// leaves one that is lost to expire: the last writes may still be on their way.
func (e *election) run(
	ctx context.Context, ready func() bool, work func(context.Context, mirror.Leadership) error) error {
	electing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	ended := make(chan bool, 1) // after it stood
	go func() {
		full := func(context.Context) (bool, error) { return ready(), nil }
		stands := wait.PollUntilContextCancel(electing, readyPeriod, true, full) == nil
		if stands {
			e.elector.Run(electing)
		}
		ended <- stands
	}()
	resign := sync.OnceFunc(func() {
		cancel()
		if !<-ended {
			return
		}
		if err := e.release(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot release the Lease, it has to expire", "lease", e.Describe())
		}
	})
	defer cancel()
	if err := work(ctx, mirror.Leadership{Begun: e.begun, Resign: resign}); err != nil {
		return fmt.Errorf("lease %s: %w", e.Describe(), err)
	}
	resign() // a process that has not led may have the Lease all the same: the answer was lost
	return nil
}

// release gives the Lease back if this process has it, so that the next leader need not wait until it expires. It tries
// more than once: a renewal that was on its way when the election ended causes a conflict.
func (e *election) release(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, releaseRetry, releaseTimeout, true, func(ctx context.Context) (bool, error) {
		var record *resourcelock.LeaderElectionRecord
		record, _, last = e.Interface.Get(ctx)
		if last == nil && record.HolderIdentity == e.Identity() {
			record.HolderIdentity, record.LeaseDurationSeconds = "", 1 // 0 is refused
			last = e.Update(ctx, *record)
		}
		return last == nil || apierrors.IsNotFound(last), nil
	})
	if err == nil {
		return nil
	}
	return cmp.Or(last, err)
}
