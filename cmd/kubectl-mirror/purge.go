package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const purgeHelp = `Delete all copies of an instance, or those of one source. SOURCE is a name or NAMESPACE/NAME, and need not exist any more.
The command shows the list and asks. It deletes only what is a copy of this instance, as the controller knows it: nothing that
has changed since it was listed, and no copy that lost its label, which counts as released. It can be interrupted and repeated.

It refuses while a controller of the instance would restore the copies: one whose Lease is renewed, or that has a ready Pod,
unless no source asks for the copies any more. It refuses, too, where the policy that protects copies is bound, and names the
command that lifts it. --force tries nevertheless.

Permissions: list ConfigMaps and namespaces, delete ConfigMaps. To find controllers: list ClusterRoleBindings or Deployments,
get Leases and list Pods in the namespace of each, and list ValidatingAdmissionPolicyBindings.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed, interrupted or not all gone; 2 unknown.`

func newPurge(c *cli) *cobra.Command {
	var output outputFlag
	var confirm confirmation
	var dryRun, force bool
	cmd := &cobra.Command{
		Use:               "purge [SOURCE]",
		Short:             "Delete the copies of an instance, or of one source",
		Long:              purgeHelp,
		Example:           "  kubectl mirror purge --dry-run\n  kubectl mirror purge platform/settings --yes",
		Args:              arguments(0, 1),
		ValidArgsFunction: c.complete(c.sources),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := c.purgeKey(args)
			if err != nil {
				return err
			}
			p, err := c.begin(cmd)
			if err != nil {
				return err
			}
			found, err := p.purgeable(cmd.Context(), asked)
			if err == nil {
				err = p.object(cmd.Context(), found, dryRun || force)
			}
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), found); err != nil || dryRun || len(found.Copies) == 0 {
				return err
			}
			if err := confirm.ask(cmd, fmt.Sprintf("Delete %s?", found.summary())); err != nil {
				return err
			}
			return p.delete(cmd.Context(), found.Copies)
		},
	}
	output.bind(cmd)
	confirm.bind(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show the list, and what would keep it from being deleted, and delete nothing.")
	cmd.Flags().BoolVar(&force, "force", false, "Delete although a controller would restore the copies, or a policy protects them.")
	return cmd
}

// purgeKey returns the source whose copies are to go; an empty one: all copies of the instance. --namespace alone could mean
// the namespace of sources, or of copies.
func (c *cli) purgeKey(args []string) (types.NamespacedName, error) {
	if len(args) == 1 {
		return c.parseKey(args[0])
	}
	if namespace := *c.kube.Namespace; namespace != "" {
		return types.NamespacedName{}, fmt.Errorf("--namespace=%q: is that of SOURCE, and there is none: name a source, or leave it out to "+
			"delete the copies of the whole instance", namespace)
	}
	return types.NamespacedName{}, nil
}

// purgeable is what there is to purge.
type purgeable struct {
	Settings string     `json:"settings"`
	Instance string     `json:"instance"`
	Copies   []*oneCopy `json:"copies"`

	asked types.NamespacedName
	snap  *snapshot.Snapshot
}

// oneCopy is a copy as it was listed.
type oneCopy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source"`
	Note      string `json:"note,omitempty"`

	object *corev1.ConfigMap
}

// purgeable returns the copies of a source, or of all if asked is empty. A copy that lost its label counts as released, and is not among them.
func (s *session) purgeable(ctx context.Context, asked types.NamespacedName) (*purgeable, error) {
	snap, err := s.List(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	f := &purgeable{Settings: s.settings.Origin, Instance: s.settings.Instance, Copies: []*oneCopy{}, asked: asked, snap: snap}
	for _, t := range snap.Targets() {
		source, ours := s.Rules.SourceOf(t.Have)
		if ours && !s.Rules.AsksToBeMirrored(t.Have) && (asked.Name == "" || asked == source) {
			f.Copies = append(f.Copies, &oneCopy{Namespace: t.Have.Namespace, Name: t.Have.Name, Source: source.String(), Note: noteOnEnd(t.Have), object: t.Have})
		}
	}
	slices.SortFunc(f.Copies, func(a, b *oneCopy) int {
		return strings.Compare(plan.KeyOf(a.object).String(), plan.KeyOf(b.object).String())
	})
	return f, nil
}

// noteOnEnd says what holds a copy up that is deleted.
func noteOnEnd(cm *corev1.ConfigMap) string {
	var parts []string
	if cm.DeletionTimestamp != nil {
		parts = append(parts, "it is being deleted")
	}
	if len(cm.Finalizers) > 0 {
		parts = append(parts, "the finalizer "+printable(cm.Finalizers[0])+" holds it")
	}
	return strings.Join(parts, ", and ")
}

// wanted returns how many of the copies a controller with these rules would restore.
func (f *purgeable) wanted(rules *plan.Rules) (n int) {
	views := map[string]*plan.View{}
	for _, c := range f.Copies {
		if views[c.Name] == nil {
			var sources []*plan.Source
			for _, s := range f.snap.View(c.Name).All() {
				sources = append(sources, rules.ParseSource(s.ConfigMap))
			}
			views[c.Name] = plan.NewView(sources)
		}
		if ns := f.snap.Namespace(c.Namespace); ns != nil && rules.Winner(views[c.Name], ns) != nil {
			n++
		}
	}
	return n
}

// object says what keeps the copies from being deleted, and returns errNo then, unless that is to be said only.
func (s *session) object(ctx context.Context, found *purgeable, only bool) error {
	objections, err := s.objections(ctx, found)
	var unknown installation.Unknown
	switch {
	case errors.As(err, &unknown) && only:
		s.say("Not checked: " + unknown.Error())
	case errors.As(err, &unknown):
		return fmt.Errorf("cannot check that nothing keeps the copies from being deleted: %w: --force goes on without that", err)
	case err != nil:
		return err
	}
	for _, o := range objections {
		if only {
			s.say("Objection: " + o)
		}
	}
	if len(objections) == 0 || only {
		return nil
	}
	s.say("Refused: " + strings.Join(objections, ". "))
	return errNo
}

// objections returns why the copies should not be deleted now, each with what would change that.
func (s *session) objections(ctx context.Context, found *purgeable) (out []string, err error) {
	if len(found.Copies) == 0 {
		return nil, nil
	}
	all, hidden, err := installation.List(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && hidden != nil {
		return nil, installation.Unknown(hidden.Error())
	}
	for _, in := range all {
		settings, err := in.Settings()
		switch {
		case err != nil && in.Instance() != s.settings.Instance: // its other settings may be malformed
			continue
		case err != nil:
			return out, installation.Unknown(err.Error())
		case settings.Instance != s.settings.Instance || settings.Label != s.settings.Label:
			continue
		}
		mine, err := s.objectionsOf(ctx, in, settings, found)
		if out = append(out, mine...); err != nil {
			return out, err
		}
	}
	return out, nil
}

// objectionsOf returns the objections that one controller of the instance gives rise to.
func (s *session) objectionsOf(ctx context.Context, in *installation.Installation, of *installation.Settings, found *purgeable) (out []string, err error) {
	rules := of.Rules()
	if n := found.wanted(rules); n > 0 {
		sign, err := in.SignOfLife(ctx, s.Client)
		if err != nil {
			return nil, err
		}
		if sign != "" {
			out = append(out, fmt.Sprintf("Controller %s would restore %d of %d copies: %s. Take the label off the sources (kubectl -n NAMESPACE "+
				"label configmap NAME %s-), or stop the controller", in.Key, n, len(found.Copies), sign, of.Label))
		}
	}
	if !slices.ContainsFunc(found.Copies, func(c *oneCopy) bool { return rules.AllowsTarget(c.Namespace) }) {
		return out, nil
	}
	bound, err := in.ProtectedBy(ctx, s.Client)
	for _, name := range bound {
		out = append(out, "A policy lets nobody but the controller delete copies. To lift it: "+liftCommand(name))
	}
	return out, err
}

func liftCommand(binding string) string {
	return "kubectl delete validatingadmissionpolicybinding " + binding
}

func (f *purgeable) names() (names []string) {
	for _, c := range f.Copies {
		names = append(names, nameOf(plan.KeyOf(c.object)))
	}
	return names
}

func (f *purgeable) table(w io.Writer, wide bool) error {
	if len(f.Copies) == 0 {
		subject := "instance " + f.Instance
		if f.asked.Name != "" {
			subject = f.asked.String()
		}
		_, err := fmt.Fprintf(w, "Nothing to delete: there is no copy of %s.\n", subject)
		return err
	}
	var rows [][]any
	for _, c := range f.Copies {
		rows = append(rows, []any{plan.KeyOf(c.object).String(), c.Source, c.Note})
	}
	if err := printTable(w, wide, []string{"Copy", "Source", "Note"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "To be deleted: %s.\n", f.summary())
	return err
}

func (f *purgeable) summary() string {
	sources := map[string]bool{}
	for _, c := range f.Copies {
		sources[c.Source] = true
	}
	of := fmt.Sprintf("%d sources", len(sources))
	if len(sources) == 1 {
		of = f.Copies[0].Source
	}
	return fmt.Sprintf("%s of %s, instance %s", count(len(f.Copies), "copy", "copies"), of, f.Instance)
}
