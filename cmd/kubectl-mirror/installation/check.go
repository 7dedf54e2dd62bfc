package installation

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Controller  string       `json:"controller,omitempty"`
	OK          bool         `json:"ok"`
	Checks      []Line       `json:"checks"`
	Differences []Difference `json:"-"` // which are among the checks
}

// ExitCode returns 1 if there is something to do, 2 if there is nothing to do and some lines are not checked, and 0 if each
// line is ok.
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

// checker has the objects that more than one check is about, and why it has not got one.
type checker struct {
	CheckOptions
	*Installation
	process        *Process
	invalid        error // an argument of the Deployment
	policies       []admissionv1.ValidatingAdmissionPolicy
	policyBindings []admissionv1.ValidatingAdmissionPolicyBinding
	noPolicies     error
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
		{"leader", without(c.noDeployment, c.invalid), c.leader},
		{"binding", c.noBinding, c.binding},
		{"version", without(c.noDeployment), c.version},
		{"permissions", without(c.noDeployment, c.invalid), c.permissions},
	} {
		detail, err := "", l.missed
		if err == nil {
			detail, err = l.check(ctx)
		}
		r.add(l.name, detail, err)
	}
	c.addPolicies(r)
	c.addSettings(r)
	c.addProbes(ctx, r)
	r.OK = r.ExitCode() == 0
	return r, ctx.Err()
}

// find finds the installation and the policies. The error is a task if there is none, and an [Unknown] if the user may not see
// it.
func (c *checker) find(ctx context.Context) error {
	all, hidden, err := List(ctx, c.Client, c.Controller)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		none := todo("install it as deploy/docs/install.md says",
			"there is no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s", Label, DeploymentSelector)
		return cmp.Or(hidden, none)
	}
	if c.Installation, err = choose(all, c.Controller); err != nil {
		return err
	}
	if c.Binding == nil {
		c.noBinding = cmp.Or(c.noBinding, todo("label it as deploy/base/rbac.yaml does",
			"no ClusterRoleBinding with the label %s names ServiceAccount %s: no policy finds it", Label, c.Account))
	}
	if c.Deployment == nil {
		c.noDeployment = cmp.Or(c.noDeployment, todo("install it as deploy/docs/install.md says",
			"no Deployment runs as ServiceAccount %s", c.Account))
	}
	c.process, c.invalid = c.Process()
	admission := c.Client.AdmissionregistrationV1()
	policies, noPolicies := answer(admission.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{}))
	bindings, noBindings := answer(admission.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{}))
	c.policies, c.policyBindings, c.noPolicies = policies.Items, bindings.Items, cmp.Or(noPolicies, noBindings)
	return nil
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
	case replicasOf(c.Deployment) > 1 && !c.process.LeaderElect:
		return "", todo("add --leader-elect", "all of the %d replicas write", replicasOf(c.Deployment))
	}
	return "the arguments of the Deployment are valid", nil
}

func (c *checker) leader(ctx context.Context) (string, error) {
	text, runs, err := c.Leader(ctx, c.Client)
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "by the arguments of the Deployment there is none", nil
	case !runs:
		return "", todo(fmt.Sprintf("kubectl -n %s logs deployment/%s", c.Key.Namespace, c.Key.Name), "%s: nothing is mirrored", text)
	}
	return text, nil
}

func (c *checker) binding(context.Context) (string, error) {
	return fmt.Sprintf("ClusterRoleBinding %s names ServiceAccount %s, and has the label for the policies", c.Binding.Name, c.Account), nil
}

// version compares minor versions: the plug-in decides as the controller of its own version does.
func (c *checker) version(context.Context) (string, error) {
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
	differences, err := c.Installation.Differences()
	const consequence = "the API server may refuse writes, or allow others"
	err = cmp.Or(without(c.noDeployment, c.noBinding, c.invalid), err)
	for _, d := range differences {
		r.add("settings/"+d.Flag, "", todo(d.Repair, "the flag has %q, and the annotation %q: %s", d.Have, d.Known, consequence))
	}
	if len(differences) == 0 {
		r.add("settings", "flags and annotations agree", err)
	}
	r.Differences = differences
}
