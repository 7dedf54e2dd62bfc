package installation

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
)

// CheckOptions say which installation to check, and how.
type CheckOptions struct {
	Client kubernetes.Interface
	// As returns a client that impersonates a user.
	As         func(user string) (kubernetes.Interface, error)
	Controller string   // NAMESPACE/NAME of a Deployment, which need not have the label; empty: the only one
	Policies   []string // that have to be in force
	Probes     bool     // ask as the account of the controller
	Version    string   // of this program
}

// Results of a check.
const (
	ResultOK      = "ok"
	ResultTodo    = "to do"
	ResultUnknown = "not checked"
)

// Line is the result of one check.
type Line struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"` // what to do
}

// Report is the result of all checks. OK tells that each line is ok.
type Report struct {
	Controller string `json:"controller,omitempty"`
	OK         bool   `json:"ok"`
	Checks     []Line `json:"checks"`
}

// ExitCode returns 1 if there is something to do, 2 if there is nothing to do and some lines are not checked, and 0 if each line is ok.
func (r *Report) ExitCode() (code int) {
	for _, l := range r.Checks {
		switch l.Result {
		case ResultTodo:
			return 1
		case ResultUnknown:
			code = 2
		}
	}
	return code
}

// task is an error that says what is wrong, and what to do about it.
type task struct{ advice, detail string }

func (t *task) Error() string { return t.detail }

func todo(advice, detail string, args ...any) error {
	return &task{advice, fmt.Sprintf(detail, args...)}
}

// add adds a line. A check whose error is no task could not be made.
func (r *Report) add(check, detail string, err error) {
	l := Line{Check: check, Result: ResultOK, Detail: detail}
	if t, wrong := err.(*task); wrong {
		l.Result, l.Detail, l.Advice = ResultTodo, t.detail, t.advice
	} else if err != nil {
		l.Result, l.Detail = ResultUnknown, strings.Join(strings.Fields(err.Error()), " ")
	}
	r.Checks = append(r.Checks, l)
}

// without is the error of a check that needs an object which another check misses.
func without(missed ...error) error {
	if err := cmp.Or(missed...); err != nil {
		return Unknown(err.Error())
	}
	return nil
}

// Check checks an installation line by line. If the user lacks a permission, the line names it.
func Check(ctx context.Context, o CheckOptions) (*Report, error) {
	r, c := &Report{}, &checker{CheckOptions: o}
	switch err := c.find(ctx).(type) {
	case nil:
	case Unknown, *task:
		r.add("controller", "", err)
		return r, nil
	default:
		return nil, err
	}
	r.Controller = c.Key.String()
	for _, l := range []struct {
		name   string
		missed error
		check  func(context.Context) (detail string, err error)
	}{
		{"deployment", c.noDeployment, c.deployment},
		{"arguments", without(c.noDeployment), c.arguments},
		{"leader", without(c.noDeployment), c.leader},
		{"binding", c.noBinding, c.binding},
		{"version/kubernetes", nil, c.kubernetes},
		{"version/controller", without(c.noDeployment), c.controller},
	} {
		detail, err := "", l.missed
		if err == nil {
			detail, err = l.check(ctx)
		}
		r.add(l.name, detail, err)
	}
	c.addPermissions(ctx, r)
	c.addPolicies(r)
	c.addSettings(r)
	c.addProbes(ctx, r)
	r.OK = r.ExitCode() == 0
	return r, ctx.Err()
}

func (c *checker) deployment(context.Context) (string, error) {
	d, wanted, kubectl := c.Deployment, replicasOf(c.Deployment), "kubectl -n "+c.Key.Namespace+" "
	switch {
	case wanted == 0:
		return "", todo(kubectl+"scale deployment "+d.Name+" --replicas=1", "Deployment %s has no replicas: nothing is mirrored", c.Key)
	case d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < wanted:
		return "", todo(kubectl+"rollout status deployment "+d.Name,
			"Deployment %s is not rolled out: %d of %d replicas are up to date", c.Key, d.Status.UpdatedReplicas, wanted)
	case d.Status.ReadyReplicas < wanted:
		return "", todo(kubectl+"describe pods, and "+kubectl+"logs deployment/"+d.Name,
			"%d of %d replicas of Deployment %s are ready", d.Status.ReadyReplicas, wanted, c.Key)
	}
	return fmt.Sprintf("Deployment %s: %d of %d replicas are ready, image %s",
		c.Key, d.Status.ReadyReplicas, wanted, cmp.Or(containerOf(d).Image, "(none)")), nil
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func (c *checker) arguments(context.Context) (string, error) {
	switch {
	case c.invalid != nil:
		return "", todo("correct the arguments of the Deployment", "%s", strings.ReplaceAll(c.invalid.Error(), "\n", ", "))
	case c.process.DryRun:
		return "the arguments of the Deployment are valid, and with --dry-run the controller writes nothing", nil
	case replicasOf(c.Deployment) > 1 && !c.process.LeaderElect:
		return "", todo("add --leader-elect", "all of the %d replicas write", replicasOf(c.Deployment))
	}
	return "the arguments of the Deployment are valid", nil
}

func (c *checker) leader(ctx context.Context) (string, error) {
	switch {
	case c.process.DryRun:
		return "with --dry-run there is none", nil
	case !c.process.LeaderElect:
		return "without --leader-elect the one replica needs no Lease", nil
	}
	key, l, _, err := c.lease(ctx, c.Client)
	advice := fmt.Sprintf("kubectl -n %s logs deployment/%s", c.Key.Namespace, c.Key.Name)
	switch {
	case err != nil:
		return "", err
	case l == nil:
		return "", todo(advice, "there is no Lease %s: no replica has ever led", key)
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil:
		return "", todo(advice, "nobody holds Lease %s: nothing is mirrored", key)
	}
	holder, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_") // the name of the Pod and a number
	if now := serverTime(ctx, c.Client); !held(l, now) {
		return "", todo(advice, "%s held Lease %s and has not renewed it for %v: nothing is mirrored",
			holder, key, now.Sub(l.Spec.RenewTime.Time).Round(time.Second))
	}
	return fmt.Sprintf("%s holds Lease %s, and has renewed it within %ds", holder, key, *l.Spec.LeaseDurationSeconds), nil
}

func (c *checker) binding(context.Context) (string, error) {
	b, value := c.Binding, c.Account.Name // as the manifests have it
	for _, p := range c.policyBindings {
		if ref := p.Spec.ParamRef; ref != nil && ref.Selector != nil && !c.selectsAny(&p) {
			value = cmp.Or(ref.Selector.MatchLabels[Label], value)
		}
	}
	if b.Labels[Label] == "" {
		return "", todo(fmt.Sprintf("kubectl label clusterrolebinding %s %s=%s", b.Name, Label, value),
			"ClusterRoleBinding %s has no label %s: no policy finds it", b.Name, Label)
	}
	return fmt.Sprintf("ClusterRoleBinding %s names ServiceAccount %s, and has the label for the policies", b.Name, c.Account), nil
}

// Minor versions of Kubernetes 1 by deploy/docs/install.md: the tested ones, and the oldest that has the policies.
const oldestTested, newestTested, oldestPolicies = 35, 37, 30

func (c *checker) kubernetes(context.Context) (string, error) {
	info, err := answer(c.Client.Discovery().ServerVersion())
	if err != nil {
		return "", err
	}
	v, err := version.ParseGeneric(info.GitVersion)
	tested := fmt.Sprintf("tested are 1.%d and 1.%d", oldestTested, newestTested)
	switch {
	case err != nil || v.Major() != 1:
		return "", fmt.Errorf("the API server has the version %q, and %s", info.GitVersion, tested)
	case v.Minor() < oldestPolicies && len(c.Policies) > 0:
		return "", todo("upgrade it, or install without the policies", "Kubernetes %s has no ValidatingAdmissionPolicies", info.GitVersion)
	case v.Minor() != oldestTested && v.Minor() != newestTested:
		return fmt.Sprintf("Kubernetes %s: it should work, though %s", info.GitVersion, tested), nil
	}
	return fmt.Sprintf("Kubernetes %s: %s", info.GitVersion, tested), nil
}

// controller compares minor versions: the plug-in decides as the controller of its own version does.
func (c *checker) controller(context.Context) (string, error) {
	own, theirs := c.Version, versionOf(c.Deployment)
	a, errA := version.ParseSemantic(own)
	b, errB := version.ParseSemantic(theirs)
	both := fmt.Sprintf("controller %s and kubectl mirror %s", cmp.Or(theirs, "(unknown)"), own)
	switch {
	case own != theirs && (errA != nil || errB != nil):
		return both + ": not both have the version of a release: it is not known whether they decide alike", nil
	case own != theirs && (a.Major() != b.Major() || a.Minor() != b.Minor()):
		return "", todo("use the plug-in of the controller's version", "%s may decide differently", both)
	}
	return both + " decide alike", nil
}

// versionOf returns the tag of the image, or else the version that a label says; empty if neither tells.
func versionOf(d *appsv1.Deployment) string {
	image, _, digested := strings.Cut(containerOf(d).Image, "@")
	name := image[strings.LastIndex(image, "/")+1:] // the registry before may have a port
	if _, tag, ok := strings.Cut(name, ":"); ok && !digested {
		return tag
	}
	return d.Labels["app.kubernetes.io/version"]
}

// addSettings adds a line for each flag that differs from the annotation by which the policies judge.
func (c *checker) addSettings(r *Report) {
	differences, err := c.Differences()
	const consequence = "the API server may refuse writes, or allow others"
	err = cmp.Or(without(c.noDeployment, c.noBinding, c.invalid), err)
	for _, d := range differences {
		r.add("settings/"+d.Flag, "", todo(d.Repair, "the flag has %q, and the annotation %q: %s", d.Have, d.Known, consequence))
	}
	if len(differences) == 0 {
		r.add("settings", "flags and annotations agree", err)
	}
}
