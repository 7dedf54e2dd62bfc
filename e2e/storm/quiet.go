package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// late is how long after the last fault a request may still arrive that was sent before: held up on its way, or by a
// process that stood still. What it did is put right again, and the quiet begins after that.
const late = 5 * time.Second

// becomeQuiet waits until the cluster is what the model says and nothing is written for a while. That nothing
// happens has no event to wait for: the window is a time.
func (s *storm) becomeQuiet(ctx context.Context, window time.Duration) error {
	for {
		verdicts, err := s.converge(ctx)
		if err != nil {
			return err
		}
		mark, err := s.cluster.Audit().Mark()
		if err != nil {
			return err
		}
		if err := sleep(ctx, window); err != nil {
			return err
		}
		again, err := s.disturbance(mark, verdicts)
		if err != nil {
			return err
		}
		if !again {
			return s.keep(ctx)
		}
	}
}

// past returns what the model has to know besides the present state.
func (s *storm) past() model.Past {
	oldest := s.fleet.oldest()
	return model.Past{
		LostLabel:  s.history.has(s.history.lostLabel),
		Pristine:   s.history.has(s.history.pristine),
		Unattended: s.fleet.starts() != s.round.starts,
		Released:   s.released,
		Judged: func(of, source model.Key) bool {
			return s.history.lastAt(of).Before(oldest) && s.history.lastAt(source).Before(oldest)
		},
		Blocked:    s.blocked,
		LooksAgain: s.profile == looking,
	}
}

// converge waits until the stage is what the model says, and returns the verdicts on it.
func (s *storm) converge(ctx context.Context) (verdicts []model.Verdict, err error) {
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	err = s.seen.Eventually(ctx, s.patience, func() error {
		verdicts, err = s.compare(s.observed())
		return err
	})
	s.counts.converged(time.Since(began))
	return verdicts, err
}

// compare returns the verdicts on a state, and all that is not as they say.
func (s *storm) compare(now model.State) ([]model.Verdict, error) {
	past := s.past()
	flags := s.fleet.present()
	verdicts := flags.Verdicts(now, past)
	errs := emptying(now)
	sums := map[string]string{} // by source
	for _, v := range verdicts {
		have := now.ConfigMaps[v.Key]
		if err := flags.Unmet(v, past, have); err != nil {
			errs = append(errs, err)
		} else if have != nil && !v.Allows(model.AsItWas) {
			errs = append(errs, sameSum(sums, have.Annotations[model.SourceAnnotation], have.Annotations[model.ChecksumAnnotation]))
		}
	}
	return verdicts, errors.Join(errs...)
}

// emptying returns an error for each object that is about to go with its namespace, which may be a source: it is not
// quiet before. What has a finalizer may stay for ever.
func emptying(now model.State) []error {
	var errs []error
	for key, cm := range now.ConfigMaps {
		if ns := now.Namespaces[key.Namespace]; ns != nil && model.Terminating(ns) && cm.DeletionTimestamp == nil {
			errs = append(errs, fmt.Errorf("%s: its namespace is still being emptied", key))
		}
	}
	return errs
}

// sameSum returns an error if the copies of a source have different checksums.
func sameSum(sums map[string]string, source, sum string) error {
	if known, ok := sums[source]; ok && known != sum {
		return fmt.Errorf("copies of %s have checksums %s and %s", source, known, sum)
	}
	sums[source] = sum
	return nil
}

// tries is how many requests there may be without effect about one place, in the time of quiet, from retries of
// what a fault left unanswered.
const tries = 2

// disturbance judges what the controller asked for since the mark. again is set if the time of quiet has to begin
// anew. Where an object is in the way, one create a minute is allowed, which is refused, and a look.
func (s *storm) disturbance(mark cluster.Mark, verdicts []model.Verdict) (again bool, err error) {
	events, _, err := s.cluster.Audit().Since(mark)
	if err != nil {
		return false, err
	}
	idle, open := map[model.Key]int{}, map[model.Key]bool{}
	for _, v := range verdicts {
		// Of an object without our label no watch tells when it goes.
		have := s.seen.ConfigMap(v.Namespace, v.Name)
		if v.Obstructed() || v.Open() || have != nil && v.Allows(model.AsItWas) && !model.Labelled(have) {
			open[v.Key] = true
		}
	}
	var errs []error
	for _, e := range events {
		key := model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
		switch {
		case e.User.Username != s.fleet.installed.User || e.Object.Resource != "configmaps" || e.Verb == "watch" || e.Verb == "list":
		case isWrite(e) && e.Received.Before(s.round.healed.Add(late)):
			again = true
		case isWrite(e) && !open[key]:
			errs = append(errs, fmt.Errorf("written when all was quiet: %v", e))
		case !open[key]:
			s.counts.idle()
			if idle[key]++; idle[key] == tries+1 {
				errs = append(errs, fmt.Errorf("asked for again and again when all was quiet, last: %v", e))
			}
		}
	}
	return again, errors.Join(errs...)
}

// isWrite reports whether the request changed something.
func isWrite(e cluster.Event) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) && e.Response.Code < 300
}

// keep compares the whole cluster, asked live, with the model, and takes down what the next round has to know.
func (s *storm) keep(ctx context.Context) error {
	now, err := s.live(ctx)
	if err != nil {
		return err
	}
	for key := range now.ConfigMaps {
		if !onStage(key) {
			delete(now.ConfigMaps, key)
		}
	}
	verdicts, err := s.compare(now)
	if err != nil {
		return fmt.Errorf("after the time of quiet: %w", err)
	}
	released := map[types.UID]bool{}
	s.settled = map[model.Key]bool{}
	for _, v := range verdicts {
		if have := now.ConfigMaps[v.Key]; have != nil && s.mayBeReleased(v, have) {
			released[have.UID] = true
		}
		s.settled[v.Key] = len(v.Allowed) == 1 && v.Allows(model.Copy)
	}
	s.released = released
	return nil
}

// mayBeReleased reports whether the leader need not know of an object without label that it is ours, for it lost the
// label before this leader began. That holds on while its source is frozen: nobody touches it then.
func (s *storm) mayBeReleased(v model.Verdict, have *corev1.ConfigMap) bool {
	if model.Labelled(have) || !v.Allows(model.AsItWas) {
		return false
	}
	return v.Open() || s.released[have.UID] || s.past().Unattended
}
