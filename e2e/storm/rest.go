package main

// What has to be when nothing happens any more.

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
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// late is how long after the last fault requests may still arrive that were sent before: their effect is repaired.
	late = 5 * time.Second
	// mostTakeovers is how often a time of quiet may begin anew: a busy machine costs a leader its lease.
	mostTakeovers = 5
)

// rest waits until all is as a plan from scratch says, and sees that it stays so: nothing is
// written. That nothing happens has no event to wait for.
func (s *storm) rest(ctx context.Context) error {
	sleep(ctx, late)
	for range mostTakeovers {
		if err := s.history.eventually(ctx, s.patience, s.asPlanned); err != nil {
			return err
		}
		leader, err := s.leader(ctx)
		if err != nil {
			return err
		}
		mark, err := s.cluster.Audit().Mark()
		if err != nil {
			return err
		}
		began := time.Now()
		sleep(ctx, s.quiet)
		events, _, err := s.cluster.Audit().Since(mark)
		if err != nil {
			return err
		}
		again, err := s.leader(ctx)
		if err != nil || again != leader || again == nil {
			continue // another process judges all anew
		}
		return errors.Join(s.judgeQuiet(events, began), s.asPlanned(), s.asMeasured(ctx, leader), s.asDone(ctx))
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the leader changed %d times when all was quiet", mostTakeovers))
}

// judgeQuiet finds writes of the controllers since a time.
func (s *storm) judgeQuiet(events []cluster.Event, since time.Time) error {
	var errs []error
	for _, e := range events {
		r, err := parse(e)
		if err != nil {
			return err
		}
		if s.isOurs(e) && r.isAbout("configmaps") && r.isWrite() && r.accepted && r.Received.After(since) {
			errs = append(errs, fmt.Errorf("written when all was quiet: %v", r))
		}
	}
	return errors.Join(errs...)
}

func (s *storm) isOurs(e cluster.Event) bool {
	return slices.ContainsFunc(s.replicas, func(r *replica) bool { return r.installed.User == e.User.Username })
}

// asPlanned returns what is not as a plan from scratch says.
func (s *storm) asPlanned() error {
	w, _ := s.history.now()
	_, due := planned(w, s.flags, s.prune)
	return due
}

// planned plans from scratch, and returns what is due, and how many copies are in each state.
func planned(w world, f flags, prune plan.Pruning) (counts map[string]int, due error) {
	rules := plan.NewRules(&f.Options)
	var errs []error
	counts = map[string]int{}
	for v, t := range w.by(rules).Places() {
		t.Prunable, t.Spared = !prune.Blocked, rules.Spares(prune, t.Namespace)
		c := rules.Decide(v, t)
		if c.Op != plan.OpNone {
			errs = append(errs, fmt.Errorf("%v: %v is due", t.Key, c.Op))
		}
		if t.Namespace != nil && terminating(t.Namespace) {
			errs = append(errs, fmt.Errorf("%s is still there", t.Namespace.Name))
		}
		if metric := c.State.Metric(); metric != "" {
			counts[metric]++
		}
		if losers := len(rules.Superseded(v, t, c)); losers > 0 {
			counts[plan.StateSuperseded.Metric()] += losers
		}
	}
	return counts, errors.Join(errs...)
}

var copiesMetric = regexp.MustCompile(`(?m)^mirror_copies\{state="(\w+)"\} (\d+)$`)

// asMeasured compares mirror_copies of the leader with the plan.
func (s *storm) asMeasured(ctx context.Context, leader *replica) error {
	leader.mu.Lock()
	process := leader.process
	leader.mu.Unlock()
	text, err := process.Ask(ctx, "/metrics")
	if err != nil {
		return err
	}
	w, _ := s.history.now()
	want, _ := planned(w, s.flags, s.prune)
	return compareMetrics(text, want)
}

func compareMetrics(text string, want map[string]int) error {
	counts := map[string]int{}
	for _, found := range copiesMetric.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(found[2]); err != nil || n > 0 {
			counts[found[1]] = n
		}
	}
	if !maps.Equal(counts, want) {
		return fmt.Errorf("mirror_copies has %v, a plan from scratch %v", counts, want)
	}
	return nil
}

// said is what kubectl mirror plan says.
type said struct {
	Changes []struct{ Namespace, Name, Operation string }
	Blocked int `json:"blockedByPruneLimit"`
}

// ask runs kubectl mirror plan with flags.
func (s *storm) ask(ctx context.Context, f flags) (out said, err error) {
	args := []string{"plan", "--output=json", "--kubeconfig=" + s.cluster.AdminKubeconfig(), "--copy-label=" + copiedLabel}
	args = append(args, f.arguments()...)
	text, err := s.cluster.Command(ctx, s.plugin, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() != 1 { // 1: there is something to do
		return out, fmt.Errorf("kubectl mirror %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return out, json.Unmarshal(text, &out)
}

// asDone returns what kubectl mirror plan says that is still to be done.
func (s *storm) asDone(ctx context.Context) error {
	if s.plugin == "" {
		return nil
	}
	out, err := s.ask(ctx, s.flags)
	if err == nil && len(out.Changes) > 0 {
		err = fmt.Errorf("kubectl mirror plan says that there is still to do: %v", out.Changes)
	}
	return err
}

// prediction is what kubectl mirror plan says before controllers start.
type prediction struct {
	operations map[key]string
	blocked    bool
}

func (s *storm) predict(ctx context.Context, f flags) (*prediction, error) {
	if s.plugin == "" {
		return nil, nil
	}
	out, err := s.ask(ctx, f)
	p := &prediction{map[key]string{}, out.Blocked > 0}
	for _, c := range out.Changes {
		p.operations[key{Namespace: c.Namespace, Name: c.Name}] = c.Operation
	}
	return p, err
}

// asPredicted compares what the controllers have written in the part with a prediction.
func (s *storm) asPredicted(p *prediction) error {
	if p == nil {
		return nil
	}
	part, err := s.part()
	if err != nil {
		return err
	}
	if p.blocked != s.prune.Blocked {
		err = fmt.Errorf("the prune limit blocks: %v by kubectl mirror plan, %v by a plan from scratch",
			p.blocked, s.prune.Blocked)
	}
	return errors.Join(err, p.compare(part))
}

// compare returns what the controllers did otherwise.
func (p *prediction) compare(did *part) error {
	written := map[key][]string{}
	for _, r := range did.requests {
		if r.isAbout("configmaps") && r.isWrite() && r.accepted && did.isOurs(r.User.Username) {
			written[r.at] = append(written[r.at], r.Verb)
		}
	}
	all := maps.Clone(p.operations)
	for at := range written {
		all[at] = p.operations[at]
	}
	var errs []error
	for at, want := range all {
		if got := strings.Join(written[at], " "); got != want && !(want == "recreate" && got == "delete create") {
			errs = append(errs, fmt.Errorf("%s: kubectl mirror plan says %q, and the controllers did %q", at, want, got))
		}
	}
	return errors.Join(errs...)
}
