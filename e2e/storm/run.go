package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// rage runs the rounds on one cluster. If one fails it tells what happened and looks for less that fails as well.
func rage(ctx context.Context, o settings, rounds []round) error {
	s, err := newStorm(ctx, o)
	if err != nil {
		return err
	}
	failed, err := s.weatherAll(ctx, rounds)
	s.summary()
	if err == nil || ctx.Err() != nil {
		return joinClose(err, s)
	}
	r := rounds[failed]
	err = fmt.Errorf("seed %d, round %d: %w", o.seed, r.number, err)
	r.steps = s.round.happened // as it happened: a replay has less to choose
	s.tell(r, err)
	given := s.given
	if err := s.close(); err != nil {
		fmt.Fprintln(o.out, err)
	}
	if o.shrink > 0 {
		shrink(ctx, o, given, r, err, replay)
	}
	return err
}

// weatherAll runs the rounds, and returns the index of the first that fails, with its error.
func (s *storm) weatherAll(ctx context.Context, rounds []round) (failed int, err error) {
	began := time.Now()
	for n, r := range rounds {
		if !r.calm {
			s.counts.round()
		}
		if s.given, err = s.take(ctx); err != nil {
			return n, err
		}
		if err := s.weather(ctx, r); err != nil {
			return n, err
		}
		if !r.calm {
			fmt.Fprintf(s.out, "%8s  seed %d, round %d of %d to %d: all is what the model says, and quiet\n",
				time.Since(began).Round(time.Second), s.seed, r.number, rounds[0].number, rounds[len(rounds)-1].number)
		}
	}
	return 0, nil
}

// summary prints the counts.
func (s *storm) summary() {
	outdated := 0
	for _, r := range s.fleet.replicas {
		for kind, n := range r.proxy.Counts() {
			if kind == faultproxy.Outdated {
				outdated += n // by the API server itself
				continue
			}
			s.counts.effects[string(kind)] += n
		}
	}
	s.counts.print(s.out)
	s.fleet.mu.Lock()
	lost, stuck := s.fleet.endings[lostLease], s.fleet.endings[didNotStop]
	s.fleet.mu.Unlock()
	fmt.Fprintf(s.out, "terms judged strictly: %d, with an excuse: %d; leases lost: %d; processes that did not stop: %d; watches that were too old: %d\n",
		s.writers.strict, s.writers.excused, lost, stuck, outdated)
}

// tell prints what is known of a round that failed, and keeps more if there is a folder for it.
func (s *storm) tell(r round, err error) {
	fmt.Fprintf(s.out, "\n%v\n\nThe same again: %s\n\nThe steps of that round, behind what was there before:\n\n", err, s.again(r.number))
	_ = writeRounds(s.out, []round{s.given, r}) // to somebody who does not listen
	for _, r := range s.fleet.replicas {
		fmt.Fprintf(s.out, "\nReplica %d printed last:\n%s\n", r.id, r.log(40))
	}
	if s.dump == "" {
		return
	}
	if err := s.keepAll(); err != nil {
		fmt.Fprintln(s.out, err)
	}
}

// keepAll writes into the folder the namespaces and ConfigMaps of the stage, and the last logs of the controllers, which end with what
// each of their goroutines is doing: they are ended for that.
func (s *storm) keepAll() error {
	if err := os.MkdirAll(s.dump, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopAnswered)
	defer cancel()
	now, errs := s.live(ctx)
	var objects []any
	for _, name := range stage {
		objects = append(objects, now.Namespaces[name])
	}
	byKey := func(a, b model.Key) int { return strings.Compare(a.String(), b.String()) }
	for _, key := range slices.SortedFunc(maps.Keys(now.ConfigMaps), byKey) {
		if cm := now.ConfigMaps[key]; onStage(key) {
			cm.Data, cm.BinaryData = nil, nil
			objects = append(objects, cm)
		}
	}
	text, err := yaml.Marshal(objects)
	errs = errors.Join(errs, err, os.WriteFile(filepath.Join(s.dump, fmt.Sprintf("seed-%d-objects.yaml", s.seed)), text, 0o600))
	for _, r := range s.fleet.replicas {
		r.quit()
		file := filepath.Join(s.dump, fmt.Sprintf("seed-%d-replica-%d.log", s.seed, r.id))
		errs = errors.Join(errs, os.WriteFile(file, []byte(r.log(1<<30)), 0o600))
	}
	return errs
}

// contentMark is the annotation on what users write that says which content it has, so that it can be written again.
const contentMark = "storm.example.com/content"

// take returns, as a calm round, what users have put into the cluster, so that a round can be replayed without those
// before it. It does not know the history of a copy.
func (s *storm) take(ctx context.Context) (round, error) {
	now, err := s.live(ctx)
	if err != nil {
		return round{}, err
	}
	out := round{calm: true}
	for _, name := range slices.Concat(homes, targets) {
		if ns := now.Namespaces[name]; ns != nil && !model.Terminating(ns) {
			st := newStep("create-namespace", name)
			for _, k := range []string{model.Label, "tier"} {
				if v, ok := ns.Labels[k]; ok {
					st = st.with(labelArg+k, v)
				}
			}
			out.steps = append(out.steps, st)
		}
	}
	var theirs []*corev1.ConfigMap
	for key, cm := range now.ConfigMaps {
		if onStage(key) && !ours(cm) && cm.DeletionTimestamp == nil {
			theirs = append(theirs, cm)
		}
	}
	slices.SortFunc(theirs, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+a.Name, b.Namespace+b.Name))
	})
	latest := map[string]time.Time{}
	for _, cm := range theirs {
		st := again(cm)
		if known, ok := latest[cm.Name]; ok && known.Before(cm.CreationTimestamp.Time) {
			st.gap = 1100 * time.Millisecond // who is older counts, in full seconds
		}
		latest[cm.Name] = cm.CreationTimestamp.Time
		out.steps = append(out.steps, st)
	}
	// Behind the sources, so that copies that were there for other flags come to be there.
	if grace := s.fleet.present().Grace; s.profile != 0 || grace != graces[0] {
		out.steps = append(out.steps, newStep("flags", "-").with(profileArg, strconv.Itoa(s.profile)).with(limitArg, "100").with(graceArg, grace.String()))
	}
	out.steps = append(out.steps, s.takeLeft(now)...)
	return out, nil
}

// takeLeft returns the steps that make the copies that stay although no source has them: those out of scope, which somebody
// made by hand, or the prune limit left, and those that lost their label.
func (s *storm) takeLeft(now model.State) []step {
	var out []step
	flags := s.fleet.present()
	for key, cm := range now.ConfigMaps {
		owner, ours := instance.Ours(cm)
		of := now.ConfigMaps[owner]
		outOfScope := of != nil && flags.OutOfScope(of, key.Namespace)
		if ours && (outOfScope || !model.Labelled(cm)) && onStage(key) && cm.DeletionTimestamp == nil {
			st := again(cm)
			st.kind = "forge"
			out = append(out, st)
		}
	}
	slices.SortFunc(out, func(a, b step) int { return cmp.Compare(a.on, b.on) })
	return out
}

// again returns the step that creates an object as it is.
func again(cm *corev1.ConfigMap) step {
	st := newStep("create-foreign", model.KeyOf(cm).String()).with(contentArg, cmp.Or(cm.Annotations[contentMark], "small:0"))
	if source(cm) {
		st.kind = "create-source"
	}
	for k, v := range cm.Labels {
		st = st.with(labelArg+k, v)
	}
	for k, v := range cm.Annotations {
		if k != contentMark {
			st = st.with(annotationArg+k, v)
		}
	}
	if immutable(cm) {
		st = st.with(immutableArg, "")
	}
	if len(cm.Finalizers) > 0 {
		st = st.with(finalizerArg, "on")
	}
	return st
}
