package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
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

// newElectionOptions returns the defaults of Kubernetes' own components. A standby reads the lease every 1 to 2.2 retry
// periods, and so takes over within the promised 5 s after a release.
func newElectionOptions() electionOptions {
	return electionOptions{
		leaseDuration: 15 * time.Second,
		renewDeadline: 10 * time.Second,
		retryPeriod:   2 * time.Second,
		name:          name,
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

// complete fills in the namespace of the lease, and returns every error in the options, joined.
func (o *electionOptions) complete() error {
	var wrong []error
	bad := func(flag string, value any, want string) {
		wrong = append(wrong, wrongValue(flag, fmt.Sprint(value), want))
	}
	o.checkTimes(bad)
	if len(validation.IsDNS1123Subdomain(o.name)) > 0 {
		bad("--leader-elect-resource-name", o.name, "must be the name of a Lease: lower-case letters, digits, '-' and '.'")
	}
	if o.namespace == "" {
		content, _ := os.ReadFile(podNamespaceFile) // outside a pod there is none
		if o.namespace = strings.TrimSpace(string(content)); o.namespace == "" && o.enabled {
			wrong = append(wrong, errors.New("--leader-elect-resource-namespace: required with --leader-elect outside a pod: give the namespace of the Lease"))
		}
	} else if o.namespace != "" && len(validation.IsDNS1123Label(o.namespace)) > 0 {
		bad("--leader-elect-resource-namespace", o.namespace, "must be the name of a namespace")
	}
	return errors.Join(wrong...)
}

// checkTimes calls bad for each duration that is wrong.
func (o *electionOptions) checkTimes(bad func(flag string, value any, want string)) {
	switch {
	case o.leaseDuration < time.Second || o.leaseDuration%time.Second != 0:
		bad("--leader-elect-lease-duration", o.leaseDuration, "must be 1s or more, in whole seconds, such as 15s")
	case o.leaseDuration-o.renewDeadline <= o.retryPeriod: // or a term could outlast the lease
		bad("--leader-elect-lease-duration", o.leaseDuration, fmt.Sprintf("must be more than "+
			"--leader-elect-renew-deadline=%v plus --leader-elect-retry-period=%v, such as %v",
			o.renewDeadline, o.retryPeriod, o.term().Truncate(time.Second)+time.Second))
	}
	if o.renewDeadline <= 0 {
		bad("--leader-elect-renew-deadline", o.renewDeadline, "must be more than 0, such as 10s")
	}
	if o.retryPeriod <= 0 {
		bad("--leader-elect-retry-period", o.retryPeriod, "must be more than 0, such as 2s")
	} else if o.renewDeadline > 0 && time.Duration(leaderelection.JitterFactor*float64(o.retryPeriod)) >= o.renewDeadline {
		bad("--leader-elect-retry-period", o.retryPeriod, fmt.Sprintf("1.2 times it must be less than "+
			"--leader-elect-renew-deadline=%v, such as %v", o.renewDeadline, o.renewDeadline/5))
	}
}

// term is how long a leader writes after its last renewal: the elector waits a retry period, and then tries until the
// deadline.
func (o *electionOptions) term() time.Duration { return o.renewDeadline + o.retryPeriod }

// lock returns the lock that the options describe, under an identity that no other process has.
func (o *electionOptions) lock(config *rest.Config) (*timedLock, error) {
	client, err := coordinationv1.NewForConfig(o.leaseConfig(config))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &timedLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.namespace, Name: o.name},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		term: o.term(),
	}, nil
}

// leaseConfig returns the configuration of a client for the lease alone. It shares neither throttle nor connection with
// other requests, so that no burst of writes delays a renewal. With HTTP/1.1 a request without an answer closes its
// connection, and the next request opens a new one. HTTP/2 would keep a dead connection for longer than the lease.
func (o *electionOptions) leaseConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.UserAgent += " leader-election"
	config.NextProtos = []string{"http/1.1"}
	config.QPS, config.Burst = -1, 0
	config.Timeout = o.renewDeadline / 2 // leaves time for one more request
	return config
}

// election acquires a lease and renews it.
type election struct {
	lock    *timedLock
	elector *leaderelection.LeaderElector
	begun   chan context.Context
	lost    func()
}

// newElection returns an election that calls lost when the lease is lost. After that the process must write nothing more, not
// even an event. lost may be called more than once, and in any goroutine.
func (o *electionOptions) newElection(lock *timedLock, watchdog *leaderelection.HealthzAdaptor, lost func()) (*election, error) {
	e := &election{lock: lock, begun: make(chan context.Context, 1), lost: lost}
	var err error
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: o.leaseDuration,
		RenewDeadline: o.renewDeadline,
		RetryPeriod:   o.retryPeriod,
		Name:          name, // a label of the metrics, whatever the lease is called
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { e.begun <- term },
			OnStoppedLeading: func() {}, // the context of the term ends as well
			OnNewLeader: func(identity string) {
				if identity != "" && identity != lock.Identity() {
					klog.Background().Info("Standing by", "leader", identity)
				}
			},
		},
		// Not ReleaseOnCancel: it would also release the lease after a failed renewal, while writes are in flight, and after
		// a pause it could release the lease of the next leader. See run.
	})
	if err != nil {
		return nil, err
	}
	watchdog.SetLeaderElection(e.elector)
	return e, nil
}

// readyPeriod is the time between two checks whether the caches are full. The first term may begin that much late.
const readyPeriod = 10 * time.Millisecond

// run calls work, which writes while this process leads, and returns its error. The election begins when ready returns true,
// because a leader without full caches would only block the lease. run releases the lease when work resigns or returns. A lost
// lease is left to expire, because its last writes may still be on their way.
func (e *election) run(ctx context.Context, ready func() bool, work func(context.Context, mirror.Leadership) error) error {
	electing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.lock.lost = func() {
		e.lost()
		cancel()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := wait.PollUntilContextCancel(electing, readyPeriod, true, func(context.Context) (bool, error) { return ready(), nil })
		if err != nil {
			return
		}
		if e.elector.Run(electing); electing.Err() == nil { // it gave up
			e.lock.lost()
		}
	}()
	end := func() {
		cancel()
		<-ended
	}
	resign := sync.OnceFunc(func() {
		end()
		if err := e.lock.release(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot release the Lease, it has to expire", "lease", e.lock.Describe())
		}
	})
	if err := work(ctx, mirror.Leadership{Begun: e.begun, Valid: e.lock.valid, Resign: resign}); err != nil {
		e.lock.lost() // work can return before the elector has
		<-ended
		return fmt.Errorf("lease %s: %w", e.lock.Describe(), err)
	}
	resign() // a process that has not led may have the lease all the same
	return nil
}
