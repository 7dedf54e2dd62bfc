package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/stalls"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// settings say how a storm is made.
type settings struct {
	controller, manifests string
	plugin                string // kubectl-mirror; empty: it is not asked
	seed                  uint64
	verbosity             string        // of the controller's log
	quiet                 time.Duration // for which nothing may be written after a storm
	eventGap              time.Duration // between two events of a process with one reason about one source; 0: none
	patience              time.Duration // in which the cluster has to be what the model says
	first, rounds         int           // number of the first, and how many
	operations            int           // in each round
	replay                string        // a file of rounds that are to happen instead, or empty
	shrink                time.Duration // how long to look for a shorter list of steps that fails
	dump                  string        // a folder for what there is when a round fails; empty: none
	out                   io.Writer
}

// storm is a cluster with the controller, and all that happens to it.
type storm struct {
	settings
	cluster *cluster.Cluster
	fleet   *fleet
	users   *users
	seen    *outside.Observer
	history *history
	stalls  *stalls.Log
	writers *writers
	sums    *sums
	counts  *counts
	stop    context.CancelFunc // of the watches
	plane   sync.Mutex         // held by who stops and starts the API server

	// Of the moment of quiet before: places with a copy that was in sync.
	settled map[model.Key]bool

	restarting sync.Mutex // held by who changes the flags

	profile int   // of the flags
	blocked bool  // by the prune limit
	given   round // what had been there before the last round began
	round   *course
	judged  *border // up to where; nil: there was no round
}

// course is what has been found out about the round that is under way.
type course struct {
	border
	happened  []step             // as they happened: on what they did
	before    time.Time          // when the round before it began
	longAgo   time.Time          // from when on all is remembered
	settled   map[model.Key]bool // places with a copy that was in sync then
	healed    time.Time          // when the last fault was over
	ended     time.Time          // when it had been quiet
	predicted *prediction        // nil: none was made
}

// newStorm starts a cluster, installs the controller and runs it. When it fails it leaves nothing behind.
func newStorm(ctx context.Context, o settings) (*storm, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	s := &storm{settings: o, cluster: c, counts: newCounts(), settled: map[model.Key]bool{}}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *storm) setUp(ctx context.Context) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	installed, err := shipped.Install(ctx, s.cluster, s.manifests, s.controller)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.cluster.Admin())
	if err != nil {
		return err
	}
	s.users, s.history = newUsers(client), newHistory()
	s.stalls, s.writers, s.sums = &stalls.Log{}, &writers{}, newSums()
	go s.stalls.Follow(watching)
	if s.seen, err = outside.Observe(watching, client); err != nil {
		return err
	}
	go s.history.follow(watching, client)
	if s.fleet, err = newFleet(ctx, s.cluster, installed, s.verbosity, s.seed); err != nil {
		return err
	}
	return s.restart(ctx, 0, 100, graces[0])
}

// close ends everything.
func (s *storm) close() error {
	if s.fleet != nil {
		s.fleet.close()
	}
	if s.stop != nil {
		s.stop()
	}
	return s.cluster.Stop()
}

// restart ends all controllers and starts them with other flags. Where the prune limit is to be met the leader ends last: a
// process that takes over from it for a moment, with the old flags, may delete what the limit would block.
func (s *storm) restart(ctx context.Context, profile, pruneLimit int, grace time.Duration) error {
	return s.change(ctx, profile, pruneLimit, grace, func(whole context.Context) error {
		var last *replica
		if pruneLimit < 100 {
			soon, cancel := context.WithTimeout(whole, s.patience)
			defer cancel()
			var err error
			if last, err = s.leader(soon); err != nil {
				return err
			}
		}
		return s.fleet.restart(whole, last)
	})
}

// change changes the flags, and has restart restart the controllers.
func (s *storm) change(ctx context.Context, profile, pruneLimit int, grace time.Duration, restart func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx) // what has begun is ended
	s.restarting.Lock()
	defer s.restarting.Unlock()
	flags, blocked := flagsOf(profile, pruneLimit), false
	flags.Grace = grace
	if flags.PruneLimit < 100 { // and only when nothing else happens, so that it is known what the prune limit sees
		now, err := s.live(ctx)
		if err != nil {
			return err
		}
		if blocked = flags.PruneBlocked(now); flags.AtEdge(now) {
			s.counts.edge()
		}
	}
	s.profile, s.blocked = profile, blocked
	if blocked {
		s.counts.block()
	}
	s.fleet.setFlags(flags, profile == resyncing)
	return restart(ctx)
}

// weather runs one round: it has the steps happen, waits for what the model says, and for quiet, and judges what
// was done to whom. Its error is what was wrong.
func (s *storm) weather(ctx context.Context, r round) error {
	whole, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if err := s.begin(ctx, stop); err != nil {
		return err
	}
	errs := []error{s.happen(whole, r)}
	s.round.healed = time.Now()
	quiet := s.quiet
	if r.calm {
		quiet = time.Second // the storm that follows has the long one
	}
	if whole.Err() == nil {
		errs = append(errs, s.becomeQuiet(whole, quiet), s.asPredicted())
	}
	s.round.ended = time.Now()
	if err := s.catchUp(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, p := range slices.Concat(s.judge(ctx), s.fleet.takeProblems()) {
		errs = append(errs, errors.New(p))
	}
	return errors.Join(errs...)
}

// memory is for how long all is remembered at least: longer than an event may wait for being written.
const memory = 3 * time.Minute

// begin takes down where things stand.
func (s *storm) begin(ctx context.Context, broken context.CancelCauseFunc) error {
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	from, err := s.begins()
	if err != nil {
		return err
	}
	s.users.forget()
	s.fleet.begin(broken)
	before := time.Time{}
	if s.round != nil {
		before = s.round.began
	}
	longAgo := time.Now().Add(-memory)
	if before.Before(longAgo) {
		longAgo = before
	}
	s.history.forget(longAgo)
	s.round = &course{border: from, before: before, longAgo: longAgo, settled: s.settled}
	return nil
}

// lanes is how many operations may happen at the same time. Those on the same object follow each other.
const lanes = 8

// happen has the steps happen and returns when all faults are over.
func (s *storm) happen(ctx context.Context, r round) error {
	faulty, heal := context.WithCancel(ctx)
	defer heal()
	var operating, failing sync.WaitGroup
	s.round.happened = slices.Clone(r.steps)
	var queues [lanes]chan *step
	problems := make(chan error, len(r.steps))
	for i := range queues {
		queues[i] = make(chan *step, len(r.steps))
		operating.Go(func() {
			for st := range queues[i] {
				problems <- s.operate(ctx, st)
			}
		})
	}
	for i := range s.round.happened {
		st := &s.round.happened[i]
		if err := sleep(ctx, st.gap); err != nil {
			break
		}
		do := faults[st.kind]
		switch {
		case do == nil && r.calm:
			problems <- s.operate(ctx, st)
		case do == nil:
			queues[hash(st.on)%lanes] <- st
		case r.calm:
			problems <- s.fail(ctx, do, *st)
		default:
			failing.Go(func() { problems <- s.fail(faulty, do, *st) })
		}
	}
	for i := range queues {
		close(queues[i])
	}
	operating.Wait()
	heal()
	failing.Wait()
	s.fleet.heal()
	close(problems)
	return joined(problems)
}

func joined(problems <-chan error) error {
	var errs []error
	for err := range problems {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func hash(text string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, text) // does not fail
	return h.Sum32()
}

// operate carries out an operation and counts it. That there was nothing to act on is no error; if something else
// serves as well, it is done to that, and the step says so from then on.
func (s *storm) operate(ctx context.Context, st *step) error {
	op := operations[st.kind]
	err := op.do(ctx, s, *st)
	if errors.Is(err, errMiss) {
		if other, ok := s.instead(op, *st); ok {
			*st = other
			err = op.do(ctx, s, other)
		}
	}
	s.counts.operation(st.kind, err)
	if err == nil || errors.Is(err, errMiss) || errors.Is(err, errUnsure) {
		return nil
	}
	return fmt.Errorf("%s: %w", *st, err)
}

// withoutAPIServer stops the API server and starts it again. Users do nothing meanwhile, and not before the history
// is told again, so that whatever it does not show was done by the controller.
func (s *storm) withoutAPIServer(ctx context.Context, stop func() error) error {
	ctx = context.WithoutCancel(ctx)
	s.plane.Lock()
	defer s.plane.Unlock()
	s.users.api.Lock()
	defer s.users.api.Unlock()
	if err := stop(); err != nil {
		return err
	}
	if err := s.cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	return s.catchUp(ctx)
}

// compact has etcd forget what was. That it has done so already, by itself or for another fault, is no error.
func (s *storm) compact(ctx context.Context) error {
	err := s.cluster.Compact(context.WithoutCancel(ctx))
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		return nil
	}
	return err
}

// catchUp waits until the watches from outside have shown all that was done before.
func (s *storm) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	barrier, err := s.barrier(ctx)
	if err != nil {
		return err
	}
	if err := s.history.await(ctx, ofConfigMaps, barrier); err != nil {
		return err
	}
	if err := s.catchUpNamespaces(ctx); err != nil {
		return err
	}
	return s.seen.Eventually(ctx, s.patience, func() error {
		if !s.seen.HasSeen(barrier) {
			return errors.New("the watch from outside is behind")
		}
		return nil
	})
}

// catchUpNamespaces is catchUp for the history of the namespaces. The annotation is on one that no step is about.
func (s *storm) catchUpNamespaces(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"storm.example.com/barrier":%q}}}`, time.Now())
	ns, err := s.users.client.CoreV1().Namespaces().Patch(ctx, metav1.NamespacePublic, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return s.history.await(ctx, ofNamespaces, ns)
}

// barrier writes a ConfigMap that has no other purpose, behind all writes before.
func (s *storm) barrier(ctx context.Context) (*corev1.ConfigMap, error) {
	api := s.users.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "barrier"}, Data: map[string]string{"time": time.Now().String()}}
	made, err := api.Update(ctx, cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return api.Create(ctx, cm, metav1.CreateOptions{})
	}
	return made, err
}

// stage are all namespaces in which something may happen.
var stage = slices.Concat(homes, targets, []string{metav1.NamespaceDefault, "mirror-system"})

// observed returns the state of the stage as the watch from outside shows it.
func (s *storm) observed() model.State {
	now := model.State{Namespaces: map[string]*corev1.Namespace{}, ConfigMaps: map[model.Key]*corev1.ConfigMap{}}
	for _, namespace := range stage {
		if ns := s.seen.Namespace(namespace); ns != nil {
			now.Namespaces[namespace] = ns
		}
		for _, name := range names {
			if cm := s.seen.ConfigMap(namespace, name); cm != nil {
				now.ConfigMaps[model.Key{Namespace: namespace, Name: name}] = cm
			}
		}
	}
	return now
}

// live returns the state of the whole cluster as the API server has it.
func (s *storm) live(ctx context.Context) (model.State, error) {
	now := model.State{Namespaces: map[string]*corev1.Namespace{}, ConfigMaps: map[model.Key]*corev1.ConfigMap{}}
	namespaces, err := s.users.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, err
	}
	for i := range namespaces.Items {
		now.Namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	configMaps, err := s.users.client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return now, err
	}
	for i := range configMaps.Items {
		now.ConfigMaps[model.KeyOf(&configMaps.Items[i])] = &configMaps.Items[i]
	}
	return now, nil
}
