package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// prediction is what `kubectl mirror plan` says while no controller runs.
type prediction struct {
	mark       cluster.Mark // when it was made
	operations map[model.Key]string
	blocked    int // copies, by the prune limit
}

// predict asks what a controller with the flags would do. Without a plug-in it asks nothing.
func (s *storm) predict(ctx context.Context) error {
	if s.plugin == "" {
		return nil
	}
	mark, err := s.cluster.Audit().Mark()
	if err != nil {
		return err
	}
	var said struct {
		Changes []struct{ Namespace, Name, Operation string }
		Blocked int `json:"blockedByPruneLimit"`
	}
	if err := s.kubectlMirror(ctx, "plan", &said); err != nil {
		return err
	}
	p := &prediction{mark: mark, operations: map[model.Key]string{}, blocked: said.Blocked}
	for _, c := range said.Changes {
		p.operations[model.Key{Namespace: c.Namespace, Name: c.Name}] = c.Operation
	}
	s.round.predicted = p
	return nil
}

// asPredicted compares what the controllers have written with the prediction.
func (s *storm) asPredicted() error {
	p := s.round.predicted
	if p == nil {
		return nil
	}
	events, _, err := s.cluster.Audit().Since(p.mark)
	if err != nil {
		return err
	}
	written := map[model.Key][]string{}
	for _, e := range events {
		if e.Object.Resource == "configmaps" && isWrite(e) && s.fleet.isOurs(e.User.Username) {
			at := model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
			written[at] = append(written[at], e.Verb)
		}
	}
	var errs []error
	if p.blocked > 0 != s.blocked {
		errs = append(errs, fmt.Errorf("kubectl mirror plan says that the prune limit blocks %d deletions, the model says %v", p.blocked, s.blocked))
	}
	now := s.observed()
	for _, at := range slices.SortedFunc(maps.Keys(joinedKeys(p.operations, written)), compareKeys) {
		have := now.ConfigMaps[at]
		if held := have != nil && have.DeletionTimestamp != nil; !fulfils(written[at], p.operations[at], held) {
			errs = append(errs, fmt.Errorf("%s: kubectl mirror plan says %q, and the controllers did %q", at, p.operations[at], written[at]))
		}
	}
	s.counts.predicted(p.operations)
	return errors.Join(errs...)
}

func joinedKeys(operations map[model.Key]string, written map[model.Key][]string) map[model.Key]bool {
	all := map[model.Key]bool{}
	for at := range operations {
		all[at] = true
	}
	for at := range written {
		all[at] = true
	}
	return all
}

func compareKeys(a, b model.Key) int { return strings.Compare(a.String(), b.String()) }

// fulfils reports whether the writes are those of an operation, none if it is empty. held is set if a finalizer holds the object.
func fulfils(writes []string, operation string, held bool) bool {
	if operation == "recreate" {
		return slices.Equal(writes, []string{"delete", "create"}) || held && slices.Equal(writes, []string{"delete"})
	}
	return strings.Join(writes, " ") == operation
}

// agree compares `kubectl mirror status` and the metrics of the leader with the model, on a state that is quiet.
func (s *storm) agree(ctx context.Context, now model.State, verdicts []model.Verdict) error {
	if s.plugin == "" {
		return nil
	}
	want := s.fleet.present().Counts(now, verdicts)
	said, err := s.status(ctx)
	if err != nil {
		return err
	}
	errs := []error{compareCounts("kubectl mirror status", said, want)}
	leader, err := s.leader(ctx)
	if err != nil || leader == nil {
		return errors.Join(append(errs, err)...)
	}
	measured, err := leader.copies(ctx)
	if err != nil {
		return err
	}
	s.counts.agreed(want)
	return errors.Join(append(errs, compareCounts("mirror_copies", measured, totals(want)))...)
}

// status asks the plug-in for the counts, those that are not 0.
func (s *storm) status(ctx context.Context) (map[string]int, error) {
	var said struct {
		Sources []struct {
			Namespace, Name string
			Counts          map[string]int
		}
	}
	if err := s.kubectlMirror(ctx, "status -A", &said); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, source := range said.Sources {
		for state, n := range source.Counts {
			if n > 0 {
				counts[source.Namespace+"/"+source.Name+" "+state] = n
			}
		}
	}
	return counts, nil
}

var copiesMetric = regexp.MustCompile(`(?m)^mirror_copies\{state="(\w+)"\} (\d+)$`)

// copies returns mirror_copies by state, those that are not 0.
func (r *replica) copies(ctx context.Context) (map[string]int, error) {
	r.mu.Lock()
	process := r.process
	r.mu.Unlock()
	text, err := process.Ask(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, found := range copiesMetric.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(found[2]); err != nil || n > 0 {
			counts[found[1]] = n
		}
	}
	return counts, nil
}

// totals adds the counts of all sources.
func totals(counts map[string]int) map[string]int {
	out := map[string]int{}
	for key, n := range counts {
		_, state, _ := strings.Cut(key, " ")
		out[state] += n
	}
	return out
}

func compareCounts(who string, said, want map[string]int) error {
	if !maps.Equal(said, want) {
		return fmt.Errorf("%s says %v, the model %v", who, said, want)
	}
	return nil
}

// kubectlMirror runs the plug-in with the flags of the fleet and reads what it prints.
func (s *storm) kubectlMirror(ctx context.Context, command string, into any) error {
	args := slices.Concat(strings.Fields(command), []string{"--output=json", "--kubeconfig=" + s.cluster.AdminKubeconfig()}, argsOf(s.fleet.present()))
	out, err := s.cluster.Command(ctx, s.plugin, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // there is something to do
	} else if exit != nil {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("kubectl mirror %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
