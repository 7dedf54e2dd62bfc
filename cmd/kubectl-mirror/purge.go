package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const purgeHelp = `Delete all copies of an instance, or those of one source, which need not exist.
The command shows the list and asks. It deletes only what is a copy of this instance: nothing that has changed since it
was listed, and no copy that lost its label. It can be interrupted and repeated.

It refuses while a controller of the instance runs, which would restore copies that a source asks for. --force
deletes them nevertheless. --out-of-scope deletes only the copies that no source claims and that the flags rule out,
also beside a running controller.

Permissions: list and delete ConfigMaps, list namespaces and Deployments, get the Lease of the controller.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed or not all gone; 2 unknown.`

func newPurge(c *cli) *cobra.Command {
	p := &purge{planned: &planned{Targets: []*target{}}}
	cmd := &cobra.Command{Use: "purge [SOURCE]", Short: "Delete the copies of an instance, or of one source",
		Long: purgeHelp, Example: "  kubectl mirror purge --dry-run\n  kubectl mirror purge platform/settings --yes",
		Args: cobra.MaximumNArgs(1)}
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "Do not ask.")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false, "Show the list, and delete nothing.")
	cmd.Flags().BoolVar(&p.force, "force", false, "Delete although a controller of the instance runs.")
	cmd.Flags().BoolVar(&p.outOfScope, "out-of-scope", false, "Delete only unclaimed copies that the flags rule out.")
	return showSettings(c.command(cmd, true, func(ctx context.Context, s *session, keys []types.NamespacedName) (printed, error) {
		p.session = s
		return p, p.list(ctx, keys)
	}))
}

// purge lists the copies, and deletes them after they are printed.
type purge struct {
	*planned
	*session                       `json:"-"`
	yes, dryRun, force, outOfScope bool
}

// end deletes the copies, unless something is against that.
func (p *purge) end() (err error) {
	for _, step := range []func(context.Context) error{p.refuse, p.confirm, p.delete} {
		if err == nil && !p.dryRun && len(p.Targets) > 0 {
			err = step(p.cmd.Context())
		}
	}
	return err
}

// list lists the copies of a source, or all.
func (p *purge) list(ctx context.Context, of []types.NamespacedName) error {
	p.settings.Prune = false // else no copy counts as out of scope
	p.Rules = plan.NewRules(&p.settings.Options.Options)
	of = append(of, types.NamespacedName{}) // all
	snap, err := p.Read(ctx, of[0].Name)
	if err != nil {
		return err
	}
	for _, c := range snap.Copies() {
		if p.outOfScope && c.State != plan.StateOutOfScope || of[0].Name != "" && of[0] != c.Owner {
			continue
		}
		reason := ""
		for _, finalizer := range c.Have.Finalizers {
			reason = "the finalizer " + finalizer + " holds it"
		}
		p.add(c, reason)
	}
	return nil
}

// refuse returns exitNo while a controller of the instance runs, and says which. Two flags go on without that.
func (p *purge) refuse(ctx context.Context) error {
	if p.force || p.outOfScope {
		return nil
	}
	deployments, err := deploymentsOf(ctx, p.Client, "")
	if p.settings.deployment != nil { // it may lack the label
		deployments = append(deployments, *p.settings.deployment)
	}
	for i := range deployments {
		d := &deployments[i]
		of, _ := newSettingsFlags().settingsOf(d) // with invalid arguments it is never ready
		if of.Instance != p.settings.Instance || of.Label != p.settings.Label {
			continue
		}
		runs, failed := of.runs(ctx, p.Client)
		err = cmp.Or(err, failed)
		if runs {
			p.say(fmt.Sprintf("Refused: the controller of Deployment %s runs, and would restore copies. Stop it before: "+
				"kubectl -n %s scale deployment %s --replicas=0", keyOf(d), d.Namespace, d.Name))
			return exitNo
		}
	}
	if err != nil {
		return fmt.Errorf("cannot check that no controller runs: %w: --force goes on without that", err)
	}
	return nil
}

// confirm returns exitNo unless the answer is yes. If nobody reads the list, the program ends here, by the flush.
func (p *purge) confirm(context.Context) error {
	if out, ok := p.cmd.OutOrStdout().(*bufio.Writer); ok {
		if err := out.Flush(); err != nil || p.yes {
			return err
		}
	}
	fmt.Fprintf(p.cmd.ErrOrStderr(), "Delete these copies of instance %s (%d)? [y/N] ", p.Rules.Instance(), len(p.Targets))
	line, _ := bufio.NewReader(p.cmd.InOrStdin()).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	p.say("Nothing was changed. --yes answers the question.")
	return exitNo
}

// delete deletes the copies that are still as they were listed. It returns exitNo if not all are gone.
func (p *purge) delete(ctx context.Context) error {
	var workers errgroup.Group
	workers.SetLimit(32) // enough for a thousand a second, and few for an API server
	var gone atomic.Int64
	for _, c := range p.Targets {
		workers.Go(func() error {
			have := c.change.Have
			err := p.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
			})
			if isHeld := len(have.Finalizers) > 0; err == nil && !isHeld || apierrors.IsNotFound(err) {
				gone.Add(1)
				return nil
			}
			return cmp.Or(err, fmt.Errorf("%s", c.Reason)) // a conflict if the copy has changed
		})
	}
	failed, all := workers.Wait(), int64(len(p.Targets))
	text := fmt.Sprintf("Deleted %d of %d copies", gone.Load(), all)
	if failed != nil {
		text += fmt.Sprintf("; failed: %d, the first because of: %v: run the command again", all-gone.Load(), failed)
	}
	p.say(text + ".")
	return verdict(gone.Load() == all)
}
