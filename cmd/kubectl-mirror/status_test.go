package main

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// event parses an event about a source, such as "Mirrored version=7 synced=2": a reason, and annotations. It is
// written after those of a lower order.
func event(namespace, name string, order int, text string) *corev1.Event {
	fields := strings.Fields(text)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint(name, order*2%3), // a list goes by it
			ResourceVersion: fmt.Sprint(8 + order),
			Annotations:     map[string]string{plan.InstanceAnnotation: "default"},
		},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, Name: name},
		Reason:         fields[0],
		Message:        "text of " + fields[0],
		LastTimestamp:  metav1.NewTime(time.Now().Add(-time.Hour)),
	}
	for _, annotation := range fields[1:] {
		key, value, _ := strings.Cut(annotation, "=")
		e.Annotations[plan.Domain+"/"+key] = value
	}
	return e
}

// events parses events about a source, which "; " separates, in the order of time.
func events(namespace, name, texts string) (all []metav1.Object) {
	for i, text := range strings.Split(texts, "; ") {
		if text != "" {
			all = append(all, event(namespace, name, i, text))
		}
	}
	return all
}

const (
	past   = "1999-12-31T23:59:59Z"
	future = "2999-12-31T23:59:59Z"
)

// settings is the source platform/settings of version 7.
func settingsSource(options ...plantest.Option) []metav1.Object {
	return []metav1.Object{plantest.Source("platform", "settings", options...)}
}

// installation is a Deployment with --source-namespace, and its Lease, which was renewed some time ago. The clock of
// the controller is an hour slow.
func installation(ago time.Duration) []metav1.Object {
	d := deploymentOf("mirror-controller", "--namespace-prefix=team- --source-namespace=platform --leader-elect")
	d.Spec.Replicas = new(int32(1))
	d.Status = appsv1.DeploymentStatus{UpdatedReplicas: 1, ReadyReplicas: 1}
	written := metav1.NewTime(time.Now().Add(-ago))
	renewed := metav1.NewMicroTime(written.Add(-time.Hour))
	holder, duration := "pod-1_random", int32(15)
	return []metav1.Object{d, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: "mirror-controller",
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &written}, {}}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &duration,
		},
	}}
}

// TestC70Status has a source in each status by what the controller has reported about it. An admin and a publisher,
// who sees one namespace, have the same exit code and the same first line, also if no controller runs. C82: what
// another instance reports changes nothing.
func TestC70Status(t *testing.T) {
	type row struct {
		title   string
		objects []metav1.Object
		events  string // about platform/settings
	}
	rows := []row{
		{"in sync", settingsSource(), "Mirrored version=7 synced=12"},
		{"held", settingsSource(), "Held; Mirrored version=7 synced=2 held=38"},
		{"a change", settingsSource(), "Mirrored version=6 synced=12"},
		{"a revert", settingsSource(), "Mirrored version=7; Mirrored version=6 synced=1"},
		{"a revert twice", settingsSource(), "Mirrored version=6; Mirrored version=7; Mirrored version=6"},
		{"another source waits", settingsSource(), "Mirrored version=7 synced=9 waiting=9"},
		{"rejected", settingsSource(), "WriteFailed; Mirrored version=7 synced=1 rejected=2"},
		{"rejected and foreign", settingsSource(), "Foreign; WriteFailed; Mirrored version=7 foreign=1 rejected=2"},
		{"foreign", settingsSource(), "Foreign; Mirrored version=7 synced=1 foreign=2"},
		{"superseded", settingsSource(), "Superseded; Mirrored version=7 superseded=2"},
		{"fought over", settingsSource(), "Fight; Mirrored version=7 synced=1 fight=1"},
		{"foreign since", settingsSource(), "Mirrored version=7 synced=3; Foreign"},
		{"foreign, repeated", settingsSource(), "Mirrored version=7 synced=3 foreign=1; Foreign"},
		{"a target that was freed", settingsSource(), "Foreign; Mirrored version=7 synced=3"},
		{"some expire", settingsSource(),
			"Expiring expiring=2 from=" + future + " until=" + future + "; Mirrored version=7 synced=1 expiring=2"},
		{"some expire since", settingsSource(), "Mirrored version=7 synced=3; Expiring from=" + future + " until=" + future},
		{"some expire and one is foreign", settingsSource(),
			"Expiring until=" + future + "; Foreign; Mirrored version=7 foreign=1 expiring=2"},
		{"some expired, and nothing was reported since", settingsSource(),
			"Mirrored version=7 synced=3; Expiring expiring=2 from=" + past + " until=" + past},
		{"kept after an undo", settingsSource(), "Expiring until=" + future + "; Mirrored version=7 synced=3"},
		{"an undo before its report", settingsSource(), "Mirrored version=6 synced=1; Expiring until=" + future},
		{"some out of scope", settingsSource(), "OutOfScope; Mirrored version=7 synced=3 out_of_scope=1"},
		{"out of scope since", settingsSource(), "Mirrored version=7 synced=3; OutOfScope"},
		{"the source out of scope", settingsSource(), "Mirrored version=7 synced=3; OutOfScope version=7 out_of_scope=3"},
		{"the source out of scope, and changed", settingsSource(), "OutOfScope version=6 out_of_scope=3"},
		{"no targets", settingsSource(), "Mirrored version=7 synced=3; NoTargets version=7"},
		{"no targets, before a change", settingsSource(), "NoTargets version=6"},
		{"no targets, and copies that are left", settingsSource(), "Expiring until=" + future +
			"; OutOfScope; NoTargets version=7 out_of_scope=1 expiring=1"},
		{"no targets, and the copies have expired", settingsSource(), "Expiring until=" + future +
			"; OutOfScope; NoTargets version=7 out_of_scope=1"},
		{"targets again", settingsSource(), "NoTargets version=7; Mirrored version=7 synced=1"},
		{"frozen", settingsSource(), "Foreign; Mirrored version=6 foreign=1; InvalidAnnotation version=7"},
		{"frozen before a change", settingsSource(), "InvalidAnnotation version=6"},
		{"reserved", settingsSource(), "ReservedName version=7"},
		{"not known", settingsSource(), ""},
		{"of another instance", settingsSource(), "Mirrored version=7 synced=2 instance=two"},
		{"a warning of another instance", settingsSource(), "Mirrored version=7 synced=2; Foreign instance=two"},
		{"forged", settingsSource(), "Mirrored version=7 synced=many"},
		{"gone", nil, "Mirrored version=7 synced=2; Expiring expiring=2 from=" + future + " until=" + future},
		{"gone with its copies", nil, "Expiring expiring=2 from=" + past + " until=" + past},
		{"gone, and another source has the copies", nil, "Expiring until=" + future + "; Mirrored version=9 synced=2"},
		{"being deleted", settingsSource(plantest.Deleting), "Expiring expiring=2 until=" + future},
		{"another label", settingsSource(plantest.Label("mirror", "True")), "Expiring expiring=2 until=" + future},
		{"another label, and never a source", settingsSource(plantest.Label("mirror", "True")), ""},
		{"no label", settingsSource(plantest.Without("mirror")), ""},
		{"a copy", []metav1.Object{plantest.Marked("platform", "settings",
			plantest.Annotation(plan.SourceAnnotation, "infra/settings"))}, ""},
		{"nothing", nil, ""},
	}
	// wait takes a second where it goes on, so all rows are asked at a time.
	answers := make([]string, len(rows))
	var group sync.WaitGroup
	for i, row := range rows {
		group.Go(func() {
			objects := append(row.objects, events("platform", "settings", row.events)...)
			answers[i] = fmt.Sprintf("=== %s: %s\n%s", row.title, row.events, answersTo(t, row.title, objects))
		})
	}
	group.Wait()
	file := goldenRows("status", "=== ")
	for i, row := range rows {
		t.Run(row.title, func(t *testing.T) { file.Row(t, answers[i]) })
	}
	file.End(t, len(rows))
}

// answersTo returns what status and wait print about platform/settings to an admin. A publisher has the same exit codes
// and the same first line.
func answersTo(t *testing.T, title string, objects []metav1.Object) string {
	t.Helper()
	admin, publisher := newAPI(t, append(installation(0), objects...)...), newAPI(t, objects...)
	publisher.refused = []string{"deployments", "leases", "namespaces"}
	code, stdout, stderr := admin.run(t, "status platform/settings")
	waitCode, waited, problems := admin.wait(t, "platform/settings")
	ends := "ends"
	if strings.Contains(problems, "Timed out") {
		ends = "goes on"
	}
	first, _, _ := strings.Cut(stdout+stderr, "\n")
	if !strings.Contains(waited+problems, first+"\n") {
		t.Errorf("%s: got %q and %q of wait, want %q in it", title, waited, problems, first)
	}
	ofPublisher, out, err := publisher.run(t, "status settings -n platform")
	line, _, _ := strings.Cut(out+err, "\n")
	waitOfPublisher, _, _ := publisher.wait(t, "settings -n platform")
	if line != first || ofPublisher != code || waitOfPublisher != waitCode {
		t.Errorf("%s: a publisher has %v, wait %v and %q, an admin %v, %v and %q",
			title, ofPublisher, waitOfPublisher, line, code, waitCode, first)
	}
	still := newAPI(t, append(installation(2*time.Minute), objects...)...)
	for _, command := range []string{"status settings -n platform", "status -n platform"} {
		code, out, _ := publisher.run(t, command)
		codeOfStill, outOfStill, _ := still.run(t, command)
		if codeOfStill != code || outOfStill != out {
			t.Errorf("%s: %s of an admin beside a controller that stands still: got %v and %q, want %v and %q",
				title, command, codeOfStill, outOfStill, code, out)
		}
	}
	return fmt.Sprintf("%s%s%v; wait %s, %v\n", stdout, stderr, code, ends, waitCode)
}

// TestStatusOfMany has sources in several namespaces, as a table, as JSON, and by their problems.
func TestStatusOfMany(t *testing.T) {
	var objects []metav1.Object
	add := func(namespace, name, texts string) {
		objects = append(objects, plantest.Source(namespace, name))
		objects = append(objects, events(namespace, name, texts)...)
	}
	add("platform", "well", "Mirrored version=7 synced=40")
	add("platform", "staged", "Held; Mirrored version=7 synced=1 held=39")
	add("platform", "narrowed", "Expiring expiring=2 from="+future+" until="+future+"; OutOfScope; "+
		"Mirrored version=7 synced=1 expiring=2 out_of_scope=1")
	add("platform", "mixed", "Foreign; WriteFailed; Mirrored version=7 synced=38 foreign=1 rejected=1")
	add("platform", "changed", "Mirrored version=6 synced=40")
	add("dev", "of-others", "") // --source-namespace does not allow it
	objects = append(objects, events("platform", "gone", "Expiring expiring=3 from="+future+" until="+future)...)
	objects = append(objects, events("platform", "gone-before", "Expiring until="+past)...)
	a := newAPI(t, append(objects, installation(0)...)...)
	empty := newAPI(t, installation(0)...)
	narrow := newAPI(t, objects...) // for a user who sees sources and events, and nothing else
	narrow.refused = []string{"deployments", "leases", "namespaces", "get configmaps"}
	blind := newAPI(t)
	blind.refused = []string{"deployments", "events"}
	rows := []struct {
		asked   *api
		command string
	}{
		{a, "status -A"},
		{a, "status -n platform"},
		{a, "status -n dev"},
		{a, "status well mixed -n platform"},
		{a, "status mixed gone -n platform -o json"},
		{a, "status -A --problems"},
		{a, "status -A --problems -o json"},
		{a, "status well staged -n platform --problems"},
		{a, "status -n dev --problems"},
		{a, "status platform/changed --controller=mirror-system --exclude-namespace=kube-*"},
		{a, "explain platform/mixed --controller=mirror-system"},
		{a, "plan platform/typing-error"},
		{a, "wait well mixed -n platform --ignore-blocked --timeout=10m"},
		{narrow, "status -A --mirror-label=mirror"},
		{narrow, "status platform/gone"},
		{narrow, "status platform/well --controller=mirror-system"},
		{narrow, "status platform/changed --namespace-selector=tier<3"},
		{empty, "status --all-namespaces"},
		{empty, "status -n other --all-namespaces --problems"},
		{empty, "status -n empty"},
		{empty, "status -A platform/well"},
		{blind, "status -A -o table"},
		{blind, "status -n blind"},
	}
	file := goldenRows("sources", "$ ")
	for _, row := range rows {
		t.Run(row.command, func(t *testing.T) {
			code, stdout, stderr := row.asked.run(t, row.command)
			stdout = regexp.MustCompile(`"reported": ".*"`).ReplaceAllString(stdout, `"reported": "TIME"`)
			file.Row(t, fmt.Sprintf("$ kubectl mirror %s\n%s%s%v\n", row.command, stdout, stderr, code))
		})
	}
	file.End(t, len(rows))
}

// TestWaitAfterATakeover: the report is that of a former leader, perhaps with other flags. The command waits for one of
// the present leader.
func TestWaitAfterATakeover(t *testing.T) {
	installed := installation(0)
	acquired := metav1.NowMicro()
	installed[1].(*coordinationv1.Lease).Spec.AcquireTime = &acquired
	source := append(settingsSource(), events("platform", "settings", "Mirrored version=7 synced=12")...)
	a := newAPI(t, append(installed, source...)...)
	const line = "A controller has just taken over, and has not reported yet\n"
	if code, _, told := a.wait(t, "platform/settings"); code != exitNo || !strings.HasPrefix(told, line) {
		t.Errorf("got %v and %q, want 1 and %q", code, told, line)
	}
}

// TestProblemsWithoutController: no controller would report a problem, so the command does not say that there is none.
// Only status and wait, which go by reports, print the line.
func TestProblemsWithoutController(t *testing.T) {
	gone := events("platform", "settings", "Expiring expiring=2 from="+past+" until="+past)
	for title, tc := range map[string]struct {
		ago            time.Duration
		code           exitCode
		problems, line string
	}{
		"a leader":  {0, exitYes, "No problems found.\n", ""},
		"no leader": {2 * time.Minute, exitNo, "", "No controller holds"},
	} {
		t.Run(title, func(t *testing.T) {
			a := newAPI(t, append(installation(tc.ago), append(gone, plantest.Namespace("team-a"))...)...)
			code, stdout, stderr := a.run(t, "status -A --problems")
			if code != tc.code || stdout != tc.problems || !strings.HasPrefix(stderr, tc.line) {
				t.Errorf("got %v, %q and %q, want %v, %q and %q", code, stdout, stderr, tc.code, tc.problems, tc.line)
			}
			for _, command := range []string{"plan", "explain platform/settings", "purge", "check"} {
				if _, _, stderr := a.run(t, command); stderr != "" {
					t.Errorf("%s: got %q on stderr, want nothing", command, stderr)
				}
			}
		})
	}
}

// TestWaitAsksForTheSettingsAgain: an API server that starts refuses the Deployments for a moment. The command would
// know nothing of the Lease, which nobody renews.
func TestWaitAsksForTheSettingsAgain(t *testing.T) {
	a := newAPI(t, append(installation(2*time.Minute), settingsSource()...)...)
	a.refused = []string{"deployments"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.with(func() {
		a.onList = func() {
			a.refused = nil
			switch a.listed {
			case 2:
				a.objects = append(a.objects, events("platform", "settings", "Mirrored version=7 synced=12")...)
			case 4:
				cancel()
			}
		}
	})
	var stdout, stderr bytes.Buffer
	code := a.start(ctx, "wait platform/settings", &stdout, &stderr)
	if code != exitNo || !strings.Contains(stderr.String(), "No controller holds Lease") {
		t.Errorf("got %v, %q and %q, want 1 and a line about the Lease", code, stdout.String(), stderr.String())
	}
}

// TestStatusWithoutController has a Lease that nobody renews, none at all, or no replica: whoever may see that is told
// first, and wait does not end with 0.
func TestStatusWithoutController(t *testing.T) {
	source := append(settingsSource(), events("platform", "settings", "Mirrored version=7 synced=12")...)
	single := deploymentOf("mirror-controller", "--namespace-prefix=team-")
	single.Status.ReadyReplicas = 1
	released := installation(0)
	released[1].(*coordinationv1.Lease).Spec.HolderIdentity = nil
	stripped := installation(0)
	stripped[1].SetManagedFields(nil)
	now := metav1.NowMicro()
	stripped[1].(*coordinationv1.Lease).Spec.RenewTime = &now
	before := installation(0) // its time is an hour old
	before[1].SetManagedFields(nil)
	patient := installation(2 * time.Minute)
	patient[1].(*coordinationv1.Lease).Spec.LeaseDurationSeconds = new(int32(180))
	for _, tc := range []struct {
		title     string
		installed []metav1.Object
		refused   []string
		line      string // on stderr, before anything else
	}{
		{"a leader", installation(30 * time.Second), nil, ""},
		{"no leader", installation(2 * time.Minute), nil, "No controller holds Lease mirror-system/mirror-controller"},
		{"a Lease that was given back", released, nil, "No controller holds Lease mirror-system/mirror-controller"},
		{"no Lease", installation(0)[:1], nil, "No controller holds Lease mirror-system/mirror-controller"},
		{"who may not see the Lease", installation(2 * time.Minute), []string{"leases"}, ""},
		{"no reviews", installation(2 * time.Minute), []string{"no selfsubjectreviews"}, ""},
		{"a leader, through a proxy", stripped, nil, ""},
		{"no leader, through a proxy", before, nil, "No controller holds Lease mirror-system/mirror-controller"},
		{"a Lease of three minutes", patient, nil, ""},
		{"no election", []metav1.Object{single}, nil, ""},
		{"no election, and no replica", []metav1.Object{deploymentOf("single", "--namespace-prefix=team-")}, nil,
			"No replica of Deployment mirror-system/single is ready"},
	} {
		t.Run(tc.title, func(t *testing.T) {
			a := newAPI(t, append(tc.installed, source...)...)
			a.refused = tc.refused
			want := exitYes // of wait
			if tc.line != "" {
				want = exitNo
			}
			code, status, toldFirst := a.run(t, "status platform/settings")
			waitCode, waited, told := a.wait(t, "platform/settings")
			const answer = "platform/settings: InSync, 12 synced\n"
			if code != exitYes || waitCode != want || !strings.HasPrefix(status, answer) || !strings.HasPrefix(waited, answer) {
				t.Errorf("got %v and %q, %v and %q, want 0 and %v", code, status, waitCode, waited, want)
			}
			if !strings.HasPrefix(toldFirst, tc.line) || !strings.HasPrefix(told, tc.line) || tc.line == "" && told != "" {
				t.Errorf("got %q and %q, want %q", toldFirst, told, tc.line)
			}
		})
	}
}
