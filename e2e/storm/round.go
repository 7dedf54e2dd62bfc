package main

// A round: a storm, and a start of the controllers behind what users did meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/stalls"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// settings say how a storm is made.
type settings struct {
	controller, deploy string
	seed               uint64
	first, rounds      int
	artefacts          string // the folder for what tells of a failure
	out                io.Writer
}

// storm is a cluster with two replicas of the controller, and all that happens to it.
type storm struct {
	settings
	cluster  *cluster.Cluster
	users    kubernetes.Interface // their requests are in the audit log
	history  *history
	replicas []*replica
	stalls   stalls.Log
	stop     context.CancelFunc // of what goes on beside
	plane    sync.RWMutex       // held for writing by who kills the API server, for reading by users
	part     *part
}

const usersName = "storm"

// newStorm starts a cluster and installs the controller. When it fails it leaves nothing behind.
func newStorm(ctx context.Context, o settings) (*storm, error) {
	c, err := cluster.Start(ctx, cluster.Options{AuditUsers: []string{usersName}, AuditBodies: true})
	if err != nil {
		return nil, err
	}
	s := &storm{settings: o, cluster: c, history: newHistory()}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *storm) setUp(ctx context.Context) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go s.stalls.Follow(beside)
	go s.history.follow(beside, s.cluster)
	config, err := s.cluster.Config(cluster.User{Name: usersName, Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	if s.users, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	installed, err := shipped.Install(ctx, s.cluster, s.deploy, s.controller)
	if err != nil {
		return err
	}
	s.replicas, err = newReplicas(ctx, s.cluster, installed, s.artefacts)
	return err
}

// close ends everything.
func (s *storm) close() error {
	each(s.replicas, (*replica).kill)
	for _, r := range s.replicas {
		_ = r.proxy.Close() // the connections that it complains of are those that it ended
		_ = r.log.Close()
	}
	if s.stop != nil {
		s.stop()
	}
	return s.cluster.Stop()
}

// drawn is what happens in a round: it follows from the seed and the number.
type drawn struct {
	storm, calm   []act
	begin, resume flags
	grace         time.Duration
}

// How much happens in a round.
const (
	stormActs = 100
	calmActs  = 25
)

// draw draws a round.
func draw(seed uint64, number int) drawn {
	d := drawer{rand.New(rand.NewPCG(seed, uint64(number)))}
	r := drawn{grace: one(d, 0, time.Second, 3*time.Second)}
	r.begin = newFlags(one(d, true, false), one(d, "", "tier!=bronze"), "team-", "dev-")
	r.resume = newFlags(one(d, true, false), r.begin.NamespaceSelector, one(d, "team-", "dev-x", ""))
	if r.resume.NamespacePrefixes[0] == "" {
		r.resume.NamespacePrefixes = r.begin.NamespacePrefixes
	}
	for _, name := range names {
		at := key{Namespace: homes[0], Name: name}
		r.storm = append(r.storm, put("put source", at, label(mirrorLabel, "true"), content(d.IntN(1000))))
	}
	for range stormActs {
		next := d.operation()
		if d.IntN(5) == 0 {
			next = d.fault()
		}
		next.after = one(d, 0, d.between(0, 100*time.Millisecond), d.between(0, time.Second))
		r.storm = append(r.storm, next)
	}
	for range calmActs {
		r.calm = append(r.calm, d.operation())
	}
	return r
}

func newFlags(prune bool, selector string, prefixes ...string) flags {
	f := flags{plan.NewOptions()}
	f.NamespacePrefixes, f.NamespaceSelector, f.Prune = prefixes, selector, prune
	return f
}

// play plays a round and returns what was wrong.
func (s *storm) play(ctx context.Context, number int) error {
	r := draw(s.seed, number)
	if err := s.clear(ctx); err != nil {
		return err
	}
	if err := s.start(ctx, r.begin, r.grace); err != nil {
		return err
	}
	s.happen(ctx, r.storm)
	if err := errors.Join(s.rest(ctx), s.finish(ctx)); err != nil {
		return err
	}
	for _, a := range r.calm {
		s.do(ctx, a)
	}
	if err := s.start(ctx, r.resume, r.grace); err != nil {
		return err
	}
	return errors.Join(s.rest(ctx), s.finish(ctx))
}

// start begins a part: it starts the controllers with flags, and takes down what they find.
func (s *storm) start(ctx context.Context, f flags, grace time.Duration) (err error) {
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	_, revision := s.history.now()
	s.part = &part{flags: f, grace: grace, since: revision, disturbed: s.disturbed}
	for _, r := range s.replicas {
		s.part.ours = append(s.part.ours, r.installed.User)
	}
	if s.part.mark, err = s.cluster.Audit().Mark(); err != nil {
		return err
	}
	arm(s.replicas, f, grace)
	each(s.replicas, (*replica).start)
	return nil
}

// happen has acts happen, and returns when all faults are over.
func (s *storm) happen(ctx context.Context, acts []act) {
	var operations, faults sync.WaitGroup
	faulty, heal := context.WithCancel(ctx)
	defer heal()
	for _, a := range acts {
		sleep(ctx, a.after)
		during, group := ctx, &operations
		if a.fault {
			during, group = faulty, &faults
		} else {
			s.plane.RLock()
		}
		group.Go(func() {
			s.do(during, a)
			if !a.fault {
				s.plane.RUnlock()
			}
		})
	}
	operations.Wait()
	heal()
	faults.Wait()
	for _, r := range s.replicas {
		r.proxy.Heal()
	}
}

// do has an act happen. That it finds nothing to act on is no error.
func (s *storm) do(ctx context.Context, a act) {
	began := time.Now()
	err := a.do(ctx, s)
	s.note("%s %s: %v", began.Format("15:04:05.000"), a, err)
}

// finish ends a part: it stops the controllers and judges what they did.
func (s *storm) finish(ctx context.Context) error {
	each(s.replicas, (*replica).stop)
	if err := s.catchUp(ctx); err != nil {
		return err
	}
	if err := s.readRequests(); err != nil {
		return err
	}
	var errs []error
	for _, problem := range s.part.judge(s.history) {
		errs = append(errs, errors.New(problem))
	}
	for _, r := range s.replicas {
		for _, problem := range r.takeProblems() {
			errs = append(errs, errors.New(problem))
		}
	}
	return errors.Join(errs...)
}

// readRequests reads what the audit log says about the part.
func (s *storm) readRequests() error {
	events, _, err := s.cluster.Audit().Since(s.part.mark)
	if err != nil {
		return err
	}
	for _, e := range events {
		r, err := parse(e)
		if err != nil {
			return err
		}
		s.part.requests = append(s.part.requests, r)
	}
	slices.SortStableFunc(s.part.requests, func(a, b *request) int { return a.Received.Compare(b.Received) })
	return nil
}

// disturbed returns how long faults, and a machine without time, kept the requests of a user up between the two.
func (s *storm) disturbed(user string, from, to time.Time) time.Duration {
	took := s.stalls.Between(from, to)
	for _, r := range s.replicas {
		if r.installed.User == user {
			took += r.disturbances.Between(from, to)
		}
	}
	return took
}

// catchUp waits until the history has what was done before: it writes a ConfigMap that has no other purpose.
func (s *storm) catchUp(ctx context.Context) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "barrier-"}}
	made, err := s.users.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, cm, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return s.history.eventually(ctx, func() error {
		if w, _ := s.history.now(); w.ConfigMaps[keyOf(made)] == nil {
			return fmt.Errorf("the history lacks %s", keyOf(made))
		}
		return nil
	})
}

// file returns the path of an artefact.
func (s *storm) file(name string) string { return filepath.Join(s.artefacts, name) }
