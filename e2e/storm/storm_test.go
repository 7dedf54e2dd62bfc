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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

var (
	controller = flag.String("controller", "../../bin/mirror-controller", "the controller's binary")
	deploy     = flag.String("deploy", "../../deploy/base", "the kustomization that installs the controller")
	seed       = flag.Uint64("seed", 401, "the seed of the first round: the others have the next ones")
	rounds     = flag.Uint64("rounds", 1, "how many rounds to play")
)

const (
	// patience is the time in which all has to be as a plan from scratch has it.
	patience = 5 * time.Minute
	// quiet is how long all has to stay so. It is longer than a deletion grace. That nothing happens has no event to
	// wait for.
	quiet = longestGrace + 2*time.Second
)

// TestStorm plays the rounds. Then it breaks each rule as a controller might, and the judge has to find that.
func TestStorm(t *testing.T) {
	s := newStorm(t)
	for n := range *rounds {
		seed := *seed + n
		name, began := fmt.Sprintf("seed=%d", seed), time.Now()
		if !t.Run(name, func(t *testing.T) { s.play(t, draw(seed)) }) {
			t.Fatalf("Play it again: make storm STORM_SEED=%d STORM_ROUNDS=1", seed)
		}
		fmt.Printf("%s: all is as planned, after %s\n", name, time.Since(began).Round(time.Second))
	}
	t.Run("what is wrong is found", s.breakRules)
}

// storm is a cluster with two replicas of the controller, and all that happens to it.
type storm struct {
	*testing.T // of the present round
	cluster    *cluster.Cluster
	users      kubernetes.Interface
	installed  *shipped.Installation
	replicas   []*replica
	apiServer  sync.RWMutex // locked while the API server is away; read-locked by each operation of a user
}

// newStorm starts a cluster and installs the controller.
func newStorm(t *testing.T) *storm {
	c, err := cluster.Start(t.Context(), cluster.Options{Recorded: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{T: t, cluster: c, users: c.Client()}
	t.Cleanup(func() { s.end(t) })
	s.installed, err = shipped.Install(t.Context(), c, *deploy, *controller)
	s.must(err)
	// A round has prefixes of its own, and a list of prefixes grows.
	s.installed.Args = slices.DeleteFunc(s.installed.Args, func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	s.replicas, err = newReplicas(t, s.installed)
	s.must(err)
	return s
}

// end ends everything, and keeps the audit log if the test has failed.
func (s *storm) end(t *testing.T) {
	for _, r := range s.replicas {
		r.end(kill)
		_ = r.proxy.Close() // it complains of connections, which it has ended itself
	}
	if t.Failed() {
		log, err := os.ReadFile(filepath.Join(s.cluster.Dir(), "audit.log"))
		if err == nil {
			err = os.WriteFile(filepath.Join(t.ArtifactDir(), "audit.log"), log, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := s.cluster.Stop(); err != nil {
		t.Error(err)
	}
}

// must ends the test if there is an error.
func (s *storm) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// play plays a round.
func (s *storm) play(t *testing.T, r round) {
	s.T = t
	s.must(s.clear(s.Context()))
	s.live(r.begin, r.grace, func() { s.happen(r.storm) })
	for _, a := range r.calm {
		s.do(s.Context(), a)
	}
	s.live(r.resume, r.grace, func() {})
}

// live starts the controllers, has something happen, waits until all is as planned, stops the controllers, and judges
// them.
func (s *storm) live(o plan.Options, grace time.Duration, happen func()) {
	mark, err := s.cluster.Audit().Mark()
	s.must(err)
	for _, r := range s.replicas {
		s.must(r.start(flagsOf(o, grace)))
	}
	happen()
	asPlanned := func() error { return s.asPlanned(o) }
	s.must(s.eventually(asPlanned))
	sleep(s.Context(), quiet)
	s.must(asPlanned())
	for _, r := range s.replicas {
		r.end(stop)
		s.must(r.failure())
	}
	s.must(asPlanned())
	s.must(errors.Join(s.findings(mark)...))
}

// happen has acts happen, and returns when all faults are over.
func (s *storm) happen(acts []act) {
	var operations, faults sync.WaitGroup
	faulty, heal := context.WithCancel(s.Context())
	defer heal()
	for _, a := range acts {
		sleep(s.Context(), a.after)
		if a.fault {
			faults.Go(func() { s.do(faulty, a) })
			continue
		}
		s.apiServer.RLock()
		operations.Go(func() {
			defer s.apiServer.RUnlock()
			s.do(s.Context(), a)
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
	s.Logf("%s +%s %s: %v", began.Format("15:04:05.000"), a.after, a.text, err)
}

// eventually waits until the condition returns nil.
func (s *storm) eventually(condition func() error) error {
	return cluster.Until(s.Context(), patience, condition)
}

// asPlanned returns what a plan from scratch would change in the cluster.
func (s *storm) asPlanned(o plan.Options) error {
	planned, err := (&snapshot.Reader{Client: s.users, Rules: plan.NewRules(&o)}).Read(s.Context(), "")
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range planned.All() {
		if d.Op != plan.OpNone {
			errs = append(errs, fmt.Errorf("%v: %v is due", d.Key, d.Op))
		}
	}
	for name, ns := range planned.Namespaces {
		if plan.Terminating(ns) {
			errs = append(errs, fmt.Errorf("%s is still there", name))
		}
	}
	return errors.Join(errs...)
}

// breakRules leaves a source without copies. As a replica it writes to a foreign object, and sends each kind of write
// without the state on which it depends.
func (s *storm) breakRules(t *testing.T) {
	s.T = t
	ctx := s.Context()
	s.must(s.clear(ctx))
	s.must(put("put source", key{Namespace: homes[0], Name: names[0]}, asSource, content(1)).do(ctx, s))
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homes[0], Name: "foreign"}}
	foreign, err := s.users.CoreV1().ConfigMaps(homes[0]).Create(ctx, foreign, metav1.CreateOptions{})
	s.must(err)
	mark, err := s.cluster.Audit().Mark()
	s.must(err)

	config, err := clientcmd.BuildConfigFromFlags("", s.installed.Kubeconfig)
	s.must(err)
	asReplica := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(homes[0])
	foreign, err = asReplica.Update(ctx, foreign, metav1.UpdateOptions{})
	s.must(err)
	foreign.ResourceVersion = ""
	_, err = asReplica.Update(ctx, foreign, metav1.UpdateOptions{})
	s.must(err)
	_, err = asReplica.Patch(ctx, foreign.Name, types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/data", "value": {"resourceVersion": "7"}}]`), metav1.PatchOptions{})
	s.must(err)
	uid := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(foreign.UID))}
	s.must(asReplica.Delete(ctx, foreign.Name, uid))

	got := fmt.Sprint(s.asPlanned(options("", true, "team-")), s.findings(mark))
	for want, times := range map[string]int{
		"team-a/settings: create is due": 1, "it depends on no copy of ours": 1, "it names no state": 3,
	} {
		if n := strings.Count(got, want); n != times {
			s.Errorf("got %d times %q, want %d: %s", n, want, times, got)
		}
	}
}

// TestRoundsFollowFromTheSeed: a failure can be played again.
func TestRoundsFollowFromTheSeed(t *testing.T) {
	text := func(seed uint64) string {
		r := draw(seed)
		var acts []string
		for _, a := range slices.Concat(r.storm, r.calm) {
			acts = append(acts, a.text, a.after.String())
		}
		return fmt.Sprint(acts, r.grace, r.begin, r.resume)
	}
	if first, again := text(1), text(1); first != again {
		t.Error("one seed makes different rounds")
	}
	if text(1) == text(2) {
		t.Error("different seeds make one round")
	}
}
