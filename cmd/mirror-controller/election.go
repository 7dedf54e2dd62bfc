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
	enabled bool

	// A Lease that was not renewed for leaseDuration can be taken. The leader
	// renews it every retryPeriod, and gives up after renewDeadline.
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration

	// name and namespace are those of the Lease.
	name      string
	namespace string
}

// newElectionOptions returns the defaults of Kubernetes' own components. A
// standby reads the Lease every 1 to 2.2 retry periods, and so takes over
// within the promised 5 s after a release.
func newElectionOptions() electionOptions {
	return electionOptions{
		leaseDuration: 15 * time.Second,
		renewDeadline: 10 * time.Second,
		retryPeriod:   2 * time.Second,
		name:          program,
	}
}

// bind adds flags that set the options.
func (o *electionOptions) bind(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "leader-elect", false,
		"Write only while holding a Lease. Several replicas can run, and one of them writes.")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration,
		"Time after which another replica can take a Lease that was not renewed. In whole "+
			"seconds, and more than the renew deadline plus the retry period.")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", o.renewDeadline,
		"Time for which the leader tries to renew the Lease before it stops writing and exits.")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", o.retryPeriod,
		"Time between two attempts to acquire or renew the Lease. A standby tries every 1 to "+
			"2.2 times this period.")
	fs.StringVar(&o.name, "leader-elect-resource-name", o.name,
		"Name of the Lease. All replicas of an installation use the same name.")
	fs.StringVar(&o.namespace, "leader-elect-resource-namespace", "",
		"Namespace of the Lease. Default: the namespace of the pod.")
}

// podNamespaceFile holds the namespace of a pod. Tests replace it.
var podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// complete fills in the namespace of the Lease, and returns every error in the
// options, joined.
func (o *electionOptions) complete() error {
	wrong := o.checkTimes()
	if len(validation.IsDNS1123Subdomain(o.name)) > 0 {
		wrong = append(wrong, wrongValue("--leader-elect-resource-name", o.name,
			"must be the name of a Lease: lower-case letters, digits, '-' and '.'"))
	}
	if o.enabled && o.namespace == "" {
		content, _ := os.ReadFile(podNamespaceFile) // there is none outside a pod
		o.namespace = strings.TrimSpace(string(content))
		if o.namespace == "" {
			wrong = append(wrong, errors.New("--leader-elect-resource-namespace: required "+
				"with --leader-elect outside a pod: give the namespace of the Lease"))
		}
	} else if o.namespace != "" && len(validation.IsDNS1123Label(o.namespace)) > 0 {
		wrong = append(wrong, wrongValue("--leader-elect-resource-namespace", o.namespace,
			"must be the name of a namespace"))
	}
	return errors.Join(wrong...)
}

// checkTimes returns an error for each duration that is wrong.
func (o *electionOptions) checkTimes() (wrong []error) {
	refuseIf := func(is bool, flag string, value time.Duration, problem string, args ...any) {
		if is {
			problem = fmt.Sprintf(problem, args...)
			wrong = append(wrong, wrongValue("--leader-elect-"+flag, value.String(), problem))
		}
	}

	// The Lease stores whole seconds.
	inSeconds := o.leaseDuration >= time.Second && o.leaseDuration%time.Second == 0
	refuseIf(!inSeconds, "lease-duration", o.leaseDuration,
		"must be 1s or more, in whole seconds, such as 15s")

	// The elector waits a retry period, and then tries until the deadline. A
	// term must not outlast the Lease, or two replicas could write.
	term := o.renewDeadline + o.retryPeriod
	refuseIf(inSeconds && o.leaseDuration <= term, "lease-duration", o.leaseDuration,
		"must be more than --leader-elect-renew-deadline=%v plus --leader-elect-retry-period=%v, "+
			"such as %v", o.renewDeadline, o.retryPeriod, term.Truncate(time.Second)+time.Second)

	refuseIf(o.renewDeadline <= 0, "renew-deadline", o.renewDeadline,
		"must be more than 0, such as 10s")
	refuseIf(o.retryPeriod <= 0, "retry-period", o.retryPeriod,
		"must be more than 0, such as 2s")

	// client-go requires that one retry fits before the deadline. It lengthens
	// the period by chance, up to its JitterFactor.
	longestRetry := time.Duration(leaderelection.JitterFactor * float64(o.retryPeriod))
	refuseIf(o.renewDeadline > 0 && longestRetry >= o.renewDeadline, "retry-period", o.retryPeriod,
		"1.2 times it must be less than --leader-elect-renew-deadline=%v, such as %v",
		o.renewDeadline, o.renewDeadline/5)
	return wrong
}

// lock returns the lock that the options describe, under an identity that no
// other process has. It has a client of its own, so that other requests cannot
// delay a renewal. A request takes half of the renew deadline at most, and
// closes its connection then: with HTTP/2, other requests would keep a dead
// connection open.
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

// election acquires a Lease and renews it, by client-go's elector. It is itself
// the lock of that elector, so that it can end a term when it reads the Lease:
// see Get.
type election struct {
	resourcelock.Interface
	// interrupted returns for how long a watch of this process has been
	// interrupted.
	interrupted func() time.Duration
	elector     *leaderelection.LeaderElector
	begun       chan context.Context // the context of the term, once this process leads
	cancel      context.CancelFunc   // ends the election, and with it the term
}

// newElection returns an election that has not begun. The watchdog fails from
// then on if the term should have ended and has not.
func (o *electionOptions) newElection(
	lock resourcelock.Interface,
	interrupted func() time.Duration,
	watchdog *leaderelection.HealthzAdaptor,
) (*election, error) {
	e := &election{
		Interface:   lock,
		interrupted: interrupted,
		begun:       make(chan context.Context, 1),
	}
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
		// Not ReleaseOnCancel: it would also release the Lease after a failed
		// renewal, while writes are in flight, and after a pause it could
		// release that of the next leader.
	})
	if err == nil {
		watchdog.SetLeaderElection(e.elector)
	}
	return e, err
}

// maxInterrupted is for how long a watch of the process that has the Lease may be
// interrupted. A restart of an API server takes less, also of its machine.
const maxInterrupted = 5 * time.Minute

// checkWatches returns an error while a watch has been interrupted for too long.
// The elector then neither acquires nor renews the Lease, so that a replica
// whose watches work may lead. Its error comes when the watch is established
// again, or when ctx ends: the elector logs each try that fails.
func (e *election) checkWatches(ctx context.Context) error {
	interrupted := e.interrupted()
	if interrupted < maxInterrupted || ctx.Err() != nil { // or the elector has waited, and tries once more
		return ctx.Err()
	}
	err := fmt.Errorf("a watch has been interrupted for %v", interrupted.Round(time.Second))
	klog.FromContext(ctx).Error(err, "Neither acquiring nor renewing the Lease until the watch is established",
		"lease", e.Describe())
	_ = wait.PollUntilContextCancel(ctx, time.Second, false, func(context.Context) (bool, error) {
		return e.interrupted() < maxInterrupted, nil
	})
	return err
}

// Create is how the elector acquires a Lease that is not there yet.
func (e *election) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := e.checkWatches(ctx); err != nil {
		return err
	}
	return e.Interface.Create(ctx, record)
}

// Update is how the elector acquires a Lease otherwise, and renews it.
func (e *election) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := e.checkWatches(ctx); err != nil {
		return err
	}
	return e.Interface.Update(ctx, record)
}

// Get reads the Lease, as the elector does before each renewal. It ends a term
// as soon as the Lease has another holder, or has expired while the process
// stood still, such as in a suspended virtual machine: the elector would go on
// until the renew deadline.
func (e *election) Get(ctx context.Context) (
	*resourcelock.LeaderElectionRecord, []byte, error,
) {
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
	// readyPeriod is the time between two checks whether the caches are full.
	readyPeriod = 10 * time.Millisecond
	// releaseRetry is the time between two attempts to release the Lease, and
	// releaseTimeout that after which it is left to expire.
	releaseRetry   = 100 * time.Millisecond
	releaseTimeout = 5 * time.Second
)

// run calls work, which writes while this process leads, and returns its error.
//
// The election begins when ready returns true: a leader without full caches
// would keep the Lease from others and write nothing. run releases the Lease
// when work resigns, or returns without an error. One that is lost is left to
// expire: the last writes may still be on their way.
func (e *election) run(
	ctx context.Context, ready func() bool, work func(context.Context, mirror.Leadership) error,
) error {
	// The end of ctx does not end the election: the last writes need the Lease.
	electing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	e.cancel = cancel
	stood := make(chan bool, 1)
	go func() { stood <- e.stand(electing, ready) }()

	resign := sync.OnceFunc(func() {
		cancel()
		if !<-stood {
			return // nothing was asked of the API server, so nothing is to be released
		}
		if err := e.release(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot release the Lease, it has to expire",
				"lease", e.Describe())
		}
	})
	if err := work(ctx, mirror.Leadership{Begun: e.begun, Resign: resign}); err != nil {
		return fmt.Errorf("lease %s: %w", e.Describe(), err)
	}
	// A process that has not led does not resign, and may have the Lease all
	// the same: the answer to its last request was lost.
	resign()
	return nil
}

// stand waits until ready returns true, and then acquires and renews the Lease
// until ctx ends or the Lease is lost. It reports whether the election began.
func (e *election) stand(ctx context.Context, ready func() bool) bool {
	isReady := func(context.Context) (bool, error) { return ready(), nil }
	if wait.PollUntilContextCancel(ctx, readyPeriod, true, isReady) != nil {
		return false
	}
	e.elector.Run(ctx)
	return true
}

// release gives the Lease back if this process has it, so that the next leader
// need not wait until it expires. It tries more than once: a renewal that was
// on its way when the election ended causes a conflict.
func (e *election) release(ctx context.Context) error {
	var last error
	try := func(ctx context.Context) (bool, error) {
		var record *resourcelock.LeaderElectionRecord
		record, _, last = e.Interface.Get(ctx)
		if last == nil && record.HolderIdentity == e.Identity() {
			record.HolderIdentity = ""
			record.LeaseDurationSeconds = 1 // the API server refuses 0
			last = e.Interface.Update(ctx, *record)
		}
		return last == nil || apierrors.IsNotFound(last), nil
	}
	err := wait.PollUntilContextTimeout(ctx, releaseRetry, releaseTimeout, true, try)
	if err == nil {
		return nil
	}
	return cmp.Or(last, err) // the error of an attempt shows more than that of the time
}
