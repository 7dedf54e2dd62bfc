// Package storm has random operations of users and random faults happen to two replicas of the controller on a real
// API server. `make storm` plays many rounds; a run of the tests plays one.
//
// The random histories of package mirror judge the controller in finer detail, in virtual time. The storm has what
// they cannot have: real processes, which are killed, stopped and paused, a real Lease, a real API server, which
// crashes, and faults of the network between the two.
//
// A round follows from its seed alone, and has a cluster of its own. First, users and faults act at the same time.
// Then the controllers stop, users go on, and the controllers start with other flags.
//
// At the end of each part nothing is left to do, and stays so, by the reading of
// the contract that judges the histories: package judge. And each update and each
// deletion by the controllers, accepted or refused, names the state on which it
// depends, and that state was a copy of ours. etcd has each state. So no source
// and no foreign object is ever written to. Users hand no object over here. That
// only the leader writes is for the tests of faults to show.
//
// A controller ends only if it is told to, or if it has lost the Lease: a panic is a failure, also one of the detector
// that watches over the objects in its cache.
//
// When a round fails, the test prints what was wrong, each step of the round, and the command that plays that round
// again. `make storm` keeps the logs of the replicas and the audit log below bin/artifacts.
package storm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

var (
	seed   = flag.Uint64("seed", 401, "the seed of the first round: the others have the next ones")
	rounds = flag.Uint64("rounds", 1, "how many rounds to play")
)

const (
	// patience is the time in which all has to be done.
	patience = 5 * time.Minute
	// quiet is how long all has to stay so. It is longer than a deletion grace. That nothing happens has no event to
	// wait for.
	quiet = longestGrace + 2*time.Second
)

// TestStorm plays the rounds.
func TestStorm(t *testing.T) {
	for n := range *rounds {
		seed := *seed + n
		name, began := fmt.Sprintf("seed=%d", seed), time.Now()
		if !t.Run(name, func(t *testing.T) { newStorm(t).play(draw(seed)) }) {
			t.Fatalf("Play it again: make storm STORM_SEED=%d STORM_ROUNDS=1", seed)
		}
		fmt.Printf("%s: all is done, after %s\n", name, time.Since(began).Round(time.Second))
	}
}

// storm is a cluster with two replicas of the controller, and all that happens to it.
type storm struct {
	*testing.T
	cluster   *cluster.Cluster
	users     kubernetes.Interface
	installed *shipped.Installation
	replicas  []*replica
}

// newStorm starts a cluster and installs the controller.
func newStorm(t *testing.T) *storm {
	c, err := cluster.Start(t.Context(), cluster.Options{Recorded: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{T: t, cluster: c, users: c.Client()}
	t.Cleanup(func() { s.must(c.Stop()) })
	s.must(cluster.CreateNamespaces(t.Context(), s.users, slices.Concat(homes, targets)...))
	s.installed, err = shipped.Install(t.Context(), c, *suite.Manifests, *suite.Binary)
	s.must(err)
	// A round has prefixes of its own, and a list of prefixes grows.
	s.installed.Args = slices.DeleteFunc(s.installed.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	for _, name := range []string{"storm-0", "storm-1"} {
		log, err := os.Create(filepath.Join(t.ArtifactDir(), name+".log"))
		s.must(err)
		proxy, err := faultproxy.Start(s.installed.Kubeconfig, t.TempDir())
		s.must(err)
		t.Cleanup(func() { _ = proxy.Close() }) // it complains of connections, which it has ended itself
		s.replicas = append(s.replicas, &replica{storm: s, proxy: proxy, log: log})
	}
	t.Cleanup(s.keepAuditLog)
	return s
}

// keepAuditLog keeps the audit log if the round has failed.
func (s *storm) keepAuditLog() {
	if s.Failed() {
		log, err := os.ReadFile(filepath.Join(s.cluster.Dir(), "audit.log"))
		s.must(errors.Join(err, os.WriteFile(filepath.Join(s.ArtifactDir(), "audit.log"), log, 0o600)))
	}
}

// must ends the round if there is an error.
func (s *storm) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// play plays a round.
func (s *storm) play(r round) {
	defer s.judge()
	s.happen(r.first)
	if s.allDone(r.begin) == nil {
		s.Fatal("Nothing is due before the controllers start: the judge sees nothing")
	}
	s.live(r.begin, r.grace, r.storm)
	s.happen(r.calm)
	s.live(r.resume, r.grace, nil)
}

// live starts the controllers, has acts happen, waits until all is done, and
// stops the controllers.
func (s *storm) live(o plan.Options, grace time.Duration, acts []act) {
	ctx, stop := context.WithCancel(s.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, r := range s.replicas {
		r.flags = flagsOf(o, grace)
		s.must(r.start())
		running.Go(func() { r.run(ctx) })
	}
	s.happen(acts)
	s.must(cluster.Until(s.Context(), patience, func() error { return s.allDone(o) }))
	sleep(s.Context(), quiet)
	s.must(s.allDone(o))
	stop()
	running.Wait()
	s.must(s.allDone(o))
}

// happen has acts happen, and returns when all faults are over.
func (s *storm) happen(acts []act) {
	var operations, faults sync.WaitGroup
	ctx, heal := context.WithCancel(s.Context())
	defer heal()
	for _, a := range acts {
		sleep(ctx, a.after)
		switch {
		case a.alone:
			s.do(ctx, a)
		case a.fault:
			faults.Go(func() { s.do(ctx, a) })
		default:
			operations.Go(func() { s.do(ctx, a) })
		}
	}
	operations.Wait()
	heal()
	faults.Wait()
}

// do has an act happen. That it finds nothing to act on, or no API server, is no error.
func (s *storm) do(ctx context.Context, a act) {
	began := time.Now()
	err := a.do(ctx, s)
	s.Logf("%s +%s %s: %v", began.Format("15:04:05.000"), a.after, a.text, err)
}

// sleep waits as people and tools do that have nothing to wait for.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// allDone returns nil, or what is left to do in the cluster.
func (s *storm) allDone(o plan.Options) error {
	configMaps, err1 := s.users.CoreV1().ConfigMaps("").List(s.Context(), metav1.ListOptions{})
	namespaces, err2 := s.users.CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	w := judge.New(&o)
	for _, cm := range configMaps.Items {
		w.ConfigMaps[plan.KeyOf(&cm)] = &cm
	}
	for _, ns := range namespaces.Items {
		w.Namespaces[ns.Name] = &ns
	}
	var errs []error
	for namespace, ns := range w.Namespaces {
		if judge.IsTerminating(ns) {
			errs = append(errs, fmt.Errorf("%s is still there", namespace))
		}
		for _, name := range names {
			k := types.NamespacedName{Namespace: namespace, Name: name}
			if due := w.Judge(k).Due; due != "" {
				errs = append(errs, fmt.Errorf("%v: %s is due", k, due))
			}
		}
	}
	return errors.Join(errs...)
}
