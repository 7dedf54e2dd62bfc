// Package plugin shows what people see of a cluster with kubectl mirror.
package plugin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// user runs kubectl mirror as one person.
type user struct {
	w          *suite.World
	kubeconfig string
	flags      []string // of each command
	names      []string // further names to replace, in pairs
}

// in returns the user in a row of a table.
func (u user) in(w *suite.World) *user {
	u.w = w
	return &u
}

// patiently has a command wait as long as the tests do.
var patiently = fmt.Sprint(" --timeout=", suite.Patience)

// answer is what a run of kubectl mirror came to, with the names that a reader expects.
type answer struct {
	code     int
	out, err string
}

// ask runs a command that has the names of an answer: team- for the prefix,
// platform for the home. Without a timeout it waits as long as the tests do. A
// machine may be so slow that a timeout is over before the cluster was read:
// then the command has more time.
func (u *user) ask(command string) answer {
	u.w.Helper()
	if strings.HasPrefix(command, "wait ") && !strings.Contains(command, "--timeout=") {
		command += patiently
	}
	const tooShort = "over before the cluster was read"
	got, timeout := u.run(command), 10*time.Second
	for strings.Contains(got.err, tooShort) && timeout < suite.Patience {
		got = u.run(fmt.Sprint(command, " --timeout=", timeout))
		timeout *= 2
	}
	return got
}

// run is ask in one try.
func (u *user) run(command string) answer {
	u.w.Helper()
	command = strings.NewReplacer("platform", u.w.Home, "team-", u.w.Prefix).Replace(command)
	args := append(strings.Fields(command), u.flags...)
	cmd := u.w.Cluster.Command(u.w.Context(), suite.Plugin(), append(args, "--kubeconfig="+u.kubeconfig)...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.w.Fatalf("kubectl mirror (make build builds it): %v", err)
	}
	names := strings.NewReplacer(u.names...)
	return answer{cmd.ProcessState.ExitCode(), names.Replace(anonymous(u.w, out.String())),
		names.Replace(anonymous(u.w, problems.String()))}
}

// lacks returns an error if the answer has another exit code, lacks one of the texts, or has one that begins with "!".
func (a answer) lacks(code int, texts ...string) error {
	for _, text := range texts {
		text, unwanted := strings.CutPrefix(text, "!")
		if a.code != code || strings.Contains(a.out+"\n"+a.err, text) == unwanted {
			return fmt.Errorf("got exit code %d and\n%s\nstderr: %s\nwant %d and\n%s", a.code, a.out, a.err, code, text)
		}
	}
	return nil
}

// says fails the test if the answer to a command lacks something.
func (u *user) says(code int, command string, texts ...string) answer {
	u.w.Helper()
	got := u.ask(command)
	if err := got.lacks(code, texts...); err != nil {
		u.w.Errorf("%s: %v", command, err)
	}
	return got
}

// until waits until the answer to a command has the texts: the API server
// notices a change of policies or roles late, and events come when they can.
func (u *user) until(code int, command string, texts ...string) {
	u.w.Helper()
	u.w.Until(command+" has "+texts[0], func() error { return u.ask(command).lacks(code, texts...) })
}

// prints fails the test if a command prints something else.
func (u *user) prints(code int, command, want string) answer {
	u.w.Helper()
	got := u.says(code, command, "")
	if want = strings.TrimSpace(want); got.out != want {
		u.w.Errorf("%s: got\n%s\nwant\n%s", command, got.out, want)
	}
	return got
}

var runsOfBlanks = regexp.MustCompile(` {2,}`)

// anonymous replaces the names of the world by those that a reader expects, and runs of blanks by two: how wide a
// column is depends on the names.
func anonymous(w *suite.World, text string) string {
	text = strings.NewReplacer(
		suite.AccountNamespace+"/"+w.Account(), "mirror-system/mirror-controller", w.Account(), "mirror-controller",
		w.Home, "platform", w.Prefix, "team-", w.Label, "mirror",
	).Replace(text)
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(runsOfBlanks.ReplaceAllString(strings.TrimRight(line, "\n"), "  "), " "))
	}
	return strings.Join(lines, "\n")
}

// ExpectPodChecks fails the test unless the API server takes the Pod into the
// namespace of the installation, and what it runs finds, as its account, that all
// is well.
func ExpectPodChecks(w *suite.Installation, pod corev1.PodSpec) {
	w.Helper()
	_, refused := w.Admin.CoreV1().Pods(w.Namespace).Create(w.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "check-"}, Spec: pod},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	kubeconfig, err := w.Cluster.ServiceAccountKubeconfig(w.Context(), w.Namespace, pod.ServiceAccountName)
	if err := errors.Join(refused, err); err != nil {
		w.Fatal(err)
	}
	command := strings.Join(pod.Containers[0].Args, " ")
	for _, e := range pod.Containers[0].Env {
		command = strings.ReplaceAll(command, "$("+e.Name+")", cmp.Or(e.Value, w.Namespace)) // else a field of the Pod
	}
	account := &user{w: w.World, kubeconfig: kubeconfig}
	account.says(0, command, "probe/copy  ok", " ok, 0 to do, 0 not checked, 0 not probed.")
}
