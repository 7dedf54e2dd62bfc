package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// late is how long after the last fault a request may still arrive that was sent before: held up on its way, or by a
// process that stood still. Its effect is restored, within the grace if that is a deletion, and the quiet begins after that.
const late = 5 * time.Second

// mostTimes is how often a time of quiet may begin: a machine that is busy with other things costs a leader its lease, and
// makes answers late.
const mostTimes = 5

// becomeQuiet waits until the cluster is what the model says and nothing is written for a while. That nothing
// happens has no event to wait for: the window is a time.
func (s *storm) becomeQuiet(ctx context.Context, window time.Duration) error {
	for range mostTimes {
		takeOvers := len(s.fleet.tookOver())
		verdicts, err := s.converge(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		mark, err := s.cluster.Audit().Mark()
		if err != nil {
			return err
		}
		if err := sleep(ctx, window); err != nil {
			return err
		}
		again, err := s.disturbance(mark, verdicts, began)
		if len(s.fleet.tookOver()) > takeOvers {
			continue // it judges what nobody has judged before, and there may be something to do about it
		}
		if err != nil {
			return err
		}
		if !again {
			return s.keep(ctx)
		}
	}
	return fmt.Errorf("%w: %d times that were to be quiet began anew", errDisturbed, mostTimes)
}

// past returns what the model has to know besides the present state.
func (s *storm) past() model.Past {
	oldest := s.fleet.oldest()
	return model.Past{
		Pristine: s.history.has(s.history.pristine),
		Judged: func(of, source model.Key) bool {
			return s.history.lastAt(of).Before(oldest) && s.history.lastAt(source).Before(oldest)
		},
		Later: func(cm *corev1.ConfigMap) bool {
			start := s.round.start[model.KeyOf(cm)]
			return len(s.fleet.tookOver()) == s.round.takeOvers && (start == nil || start.UID != cm.UID)
		},
		Blocked: s.blocked,
	}
}

// converge waits until the stage is what the model says, and returns the verdicts on it.
func (s *storm) converge(ctx context.Context) (verdicts []model.Verdict, err error) {
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.patience+s.fleet.present().Grace)
	defer cancel()
	err = s.seen.Eventually(ctx, s.patience+s.fleet.present().Grace, func() error {
		verdicts, err = s.compare(s.observed())
		return err
	})
	s.counts.converged(time.Since(began))
	if err == nil && slices.ContainsFunc(verdicts, model.Verdict.Open) {
		err = s.outlast(ctx)
	}
	return verdicts, err
}

// outlast waits until no copy expires any more, by the word of the leader. Only where the outcome is open may one be there still.
func (s *storm) outlast(ctx context.Context) error {
	for {
		leader, err := s.leader(ctx) // waits for a renewal of the lease
		if err != nil || leader == nil {
			return errors.Join(err, ctx.Err())
		}
		counts, err := leader.copies(ctx)
		if err != nil || counts["expiring"] == 0 {
			return err
		}
	}
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
// quiet before. An object with a finalizer may stay for ever.
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

// errDisturbed is the error of a time of quiet that was none.
var errDisturbed = errors.New("it was not quiet")

// disturbance judges what the controller asked for since the mark, which was made when the time of quiet began. again
// is set if that has to begin anew.
func (s *storm) disturbance(mark cluster.Mark, verdicts []model.Verdict, began time.Time) (again bool, err error) {
	events, _, err := s.cluster.Audit().Since(mark)
	if err != nil {
		return false, err
	}
	q := &quietness{began: quietFrom(began, s.round.healed.Add(s.fleet.present().Grace)), window: time.Since(began), open: openPlaces(verdicts), asked: map[string]int{}}
	for _, e := range events {
		if s.fleet.isOurs(e.User.Username) {
			q.count(e)
		}
	}
	s.counts.idle(q.idle)
	return q.verdict()
}

// quietFrom returns from when on what is asked for disturbs a time of quiet that began when the last fault was over since
// healed.
func quietFrom(began, healed time.Time) time.Time {
	if until := healed.Add(late); until.After(began) {
		return until
	}
	return began
}

// openPlaces returns the places to which there may be requests in the time of quiet, and how many may change something. No
// watch tells when an object in the way goes, so a create is tried now and then, and the object is read.
func openPlaces(verdicts []model.Verdict) map[model.Key]int {
	open := map[model.Key]int{}
	for _, v := range verdicts {
		switch {
		case v.Open():
			open[v.Key] = 1 // a copy out of scope is deleted
		case v.Obstructed():
			open[v.Key] = 0
		}
	}
	return open
}

// quietness is the judgement on a time of quiet.
type quietness struct {
	began  time.Time
	window time.Duration
	open   map[model.Key]int // see openPlaces
	asked  map[string]int    // requests, by whose they are and about what
	idle   int               // requests about ConfigMaps that had no effect
	early  bool              // a ConfigMap was written by a request from before it began
	errs   []error
}

// verdict returns an error if it was not quiet. again is set if that has to be judged anew.
func (q *quietness) verdict() (again bool, err error) {
	if len(q.errs) > 0 {
		err = fmt.Errorf("%w: %w", errDisturbed, errors.Join(q.errs...))
	}
	return q.early, err
}

// count takes in a request. The audit log gets its line when it is answered, which can be after a watch has shown what
// it did: so there are lines behind the mark of writes that are older.
func (q *quietness) count(e cluster.Event) {
	if isWrite(e) && e.Object.Resource == "configmaps" && e.Received.Before(q.began) {
		q.early = true
		return
	}
	key := model.Key{Namespace: e.Object.Namespace, Name: e.Object.Name}
	changes, open := q.open[key]
	what, most := e.Verb, 0
	switch {
	case e.Object.Resource == "configmaps" && isWrite(e):
		what, most = "accepted", changes
	case e.Object.Resource == "configmaps" && key.Name != "":
		q.idle++
		if e.Received.Before(q.began.Add(settling)) {
			return
		}
		if most = retried; open {
			most = rampOf(q.window)
		}
	case e.Object.Resource == "events":
		key.Name, most = eventName(key.Name), reasons // which may have waited until then
	case e.Object.Resource == "leases":
		what, key, most = "", model.Key{}, leaseRequests+leaseRequests*int(q.window/time.Second)
	case e.Verb == "watch" || e.Verb == "list":
		what, most = "watch", watchesAnew
	default: // live reads of namespaces
		most = retried
	}
	of := fmt.Sprintf("%s %s %s %s", e.User.Username, what, e.Object.Resource, key)
	if q.asked[of]++; q.asked[of] == most+1 {
		q.errs = append(q.errs, fmt.Errorf("more than %d such requests when all was quiet, the last at %s: %v", most, e.Received.Format(time.StampMilli), e))
	}
}

// What is allowed in a time of quiet, of each kind.
const (
	// settling is for how long requests without effect do not count: each of the last events of a round is a reason to read
	// once more.
	settling = time.Second
	// retried is how many requests there may be about one object, from retries of what a fault left unanswered.
	retried = 2
	// watchesAnew is how often the watch of a resource may begin anew: faults ended it, and it is time for another one.
	watchesAnew = 4
	// leaseRequests is how many there may be in a second, and at once: the lease is read every half a second.
	leaseRequests = 4
)

// rampOf is how many creates there may be in a time where an object is in the way, and as many reads: at once, after 1
// second, 2 and 4 more and so on up to once a minute, if it came into the way only then; and once more, for a create may
// have been tried before for another reason.
func rampOf(window time.Duration) int {
	n := 2
	for at, pause := time.Second, time.Second; at <= window; at += pause {
		n++
		pause = min(2*pause, time.Minute)
	}
	return n
}

// writeVerbs are those of requests that change something.
var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// isWrite reports whether the request changed something. A dry run does not.
func isWrite(e cluster.Event) bool {
	return slices.Contains(writeVerbs, e.Verb) && e.Response.Code < 300 && !isDryRun(e)
}

func isDryRun(e cluster.Event) bool { return strings.Contains(e.RequestURI, "dryRun=") }

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
	if err := s.agree(ctx, now, verdicts); err != nil {
		return err
	}
	s.settled = map[model.Key]bool{}
	for _, v := range verdicts {
		s.settled[v.Key] = len(v.Allowed) == 1 && v.Allows(model.Copy)
	}
	return nil
}
