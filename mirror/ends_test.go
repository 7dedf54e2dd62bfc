package mirror

// What each scene is held against at its end, whatever it is about.

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2/ktesting"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// isSafe fails the test if the controller sent a request that could do harm or no good, an event that lists nothing, or
// a line twice within a second. If it has left a goroutine behind, the bubble panics.
func (s scene) isSafe() {
	s.t.Helper()
	if lacking != "" { // a scene may go on to use what is not there
		if p := recover(); p != nil {
			s.t.Errorf("panic: %v", p)
		}
	}
	for _, what := range s.Unsafe() {
		s.t.Error(what)
	}
	for _, e := range s.events {
		if strings.Contains(e.Note, ": .") {
			s.t.Errorf("got an event without what it is about: %.300q", e.Note)
		}
	}
	for _, k := range s.readWithoutReason() {
		s.t.Errorf("got a read of %v, want it for a deletion, or for what is in the way, or beside others' metadata", k)
	}
	for _, line := range s.linesTwice() {
		s.t.Errorf("got a line twice within a second: %.300s", line)
	}
}

// readWithoutReason returns the ConfigMaps that were read although no copy of them was ever there, and nothing else
// than a plain copy of ours was ever in their place, or was refused there.
func (s scene) readWithoutReason() []key {
	reasons := map[key]bool{}
	rules := s.controller.rules
	add := func(cm *corev1.ConfigMap) {
		source, isOurs := rules.SourceOf(cm)
		reasons[source] = true
		stripped := cm.DeepCopy()
		rules.Strip(stripped)
		isPlain := isOurs && rules.Visible(cm) && cm.DeletionTimestamp == nil && !plan.HasOthers(stripped)
		reasons[plan.KeyOf(cm)] = reasons[plan.KeyOf(cm)] || !isPlain
	}
	read := s.Read()
	if len(read) == 0 {
		return nil
	}
	for _, c := range s.ConfigMaps.Changes() {
		if c.Old != nil {
			add(*c.Old)
		}
		if c.New != nil {
			add(*c.New)
		}
	}
	for _, cm := range s.ConfigMaps.All() {
		add(cm)
	}
	return slices.DeleteFunc(read, func(k key) bool { return reasons[k] })
}

// linesTwice returns the lines of the log that came twice within a second.
func (s scene) linesTwice() (all []string) {
	last := map[string]time.Time{}
	for _, e := range s.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		line := fmt.Sprint(e.Message, e.Err, e.ParameterKVList)
		if at, isThere := last[line]; isThere && e.Timestamp.Sub(at) < time.Second {
			all = append(all, line)
		}
		last[line] = e.Timestamp
	}
	return all
}

// judged is how many places are judged at the end of a scene, if there are more: each takes a look at all ConfigMaps.
const judged = 100

// settles ends all faults, and fails the test unless each target is as the contract has it half an hour later, and each
// source is reported.
func (s scene) settles() {
	s.t.Helper()
	if lacking == "reports" { // a scene that ends with a stop has no such end
		printColor(s.t)
	}
	if s.t.Failed() || lacking != "" && lacking != "reports" {
		return
	}
	hasLost := false
	s.Hook(func(h *apitest.Hooks) {
		hasLost = h.Lost != nil
		*h = apitest.Hooks{}
	})
	s.onEvent(nil)
	if hasLost { // else nothing but its own retries may help the controller
		s.ConfigMaps.Expire()
		s.Namespaces.Expire()
	}
	time.Sleep(s.controller.grace + 30*time.Minute)
	synctest.Wait()
	w := s.now(s.controller.opts)
	names := map[string]bool{}
	for k, cm := range w.ConfigMaps {
		names[k.Name] = true
		s.isReported(w, cm)
	}
	places := len(names) * len(w.Namespaces)
	i := 0
	for name := range names {
		for namespace := range w.Namespaces {
			i++
			if i%(places/judged+1) == 0 {
				s.isDone(w, key{Namespace: namespace, Name: name})
			}
		}
	}
}

// isDone fails the test if something is left to do at a target. What admission made of an immutable copy stays.
func (s scene) isDone(w *judge.Cluster, k key) {
	s.t.Helper()
	v, have := w.Judge(k), w.ConfigMaps[k]
	isAltered := v.Due == "recreate" && s.spoilt()[have.UID]
	if v.Due != "" && !isAltered {
		s.t.Errorf("%v: %s is due in the end, and there is %.300v", k, v.Due, have)
	}
}

// isReported fails the test if a ConfigMap is a source, and no event is about its version.
func (s scene) isReported(w *judge.Cluster, cm *corev1.ConfigMap) {
	s.t.Helper()
	ns := w.Namespaces[cm.Namespace]
	if !w.AsksToBeMirrored(cm) || !w.AllowsSource(cm.Namespace) || ns != nil && judge.IsTerminating(ns) {
		return
	}
	s.diary.mu.Lock()
	defer s.diary.mu.Unlock()
	if got := s.versions[plan.KeyOf(cm)]; got != cm.ResourceVersion {
		s.t.Errorf("%s/%s: got the last event about version %q, want %q", cm.Namespace, cm.Name, got, cm.ResourceVersion)
	}
}
