package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
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

Permissions: list and delete ConfigMaps, list namespaces and Deployments.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed or not all gone; 2 unknown.`

func newPurge(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "purge [SOURCE]",
		Short:   "Delete the copies of an instance, or of one source",
		Long:    purgeHelp,
		Example: "  kubectl mirror purge --dry-run\n  kubectl mirror purge platform/settings --yes",
		Args:    cobra.MaximumNArgs(1),
	}
	p := &purge{changes: &changes{Targets: []*change{}}}
	flags := cmd.Flags()
	flags.BoolVarP(&p.yes, "yes", "y", false, "Do not ask.")
	flags.BoolVar(&p.dryRun, "dry-run", false, "Show the list, and delete nothing.")
	flags.BoolVar(&p.force, "force", false,
		"Delete although a controller of the instance runs.")
	flags.BoolVar(&p.outOfScope, "out-of-scope", false,
		"Delete only unclaimed copies that the flags rule out.")
	return c.command(cmd, true, p.run)
}

// purge is one run of the command: its flags, and the copies that it is to
// delete.
type purge struct {
	*session
	*changes // the copies, each with its decision to delete it

	// These are the flags, under their names.
	yes        bool
	dryRun     bool
	force      bool
	outOfScope bool
}

// run prints the copies and, unless something is against that, deletes them.
func (p *purge) run(ctx context.Context, s *session, keys []types.NamespacedName) error {
	p.session = s
	if err := s.begin(ctx); err != nil {
		return err
	}
	source := append(keys, types.NamespacedName{})[0] // empty: copies of all sources
	if err := p.list(ctx, source); err != nil {
		return err
	}
	p.print(p.changes)
	if p.dryRun || len(p.Targets) == 0 {
		return nil
	}
	if err := p.refuse(ctx); err != nil {
		return err
	}
	if err := p.confirm(); err != nil {
		return err
	}
	return p.delete(ctx)
}

// list lists the copies of a source or, if the key is empty, all.
func (p *purge) list(ctx context.Context, source types.NamespacedName) error {
	// With --prune no copy would be out of scope, so --out-of-scope goes by the
	// rules without it.
	p.settings.Prune = false
	p.Rules = plan.NewRules(&p.settings.Options.Options)
	snap, err := p.Read(ctx, source.Name)
	if err != nil {
		return err
	}
	for _, c := range snap.Copies() {
		isAskedFor := source.Name == "" || source == c.Owner
		if !isAskedFor || p.outOfScope && c.State != plan.StateOutOfScope {
			continue
		}
		// A finalizer keeps the copy after its deletion. The user may know it.
		reason := ""
		for _, finalizer := range c.Have.Finalizers {
			reason = "the finalizer " + finalizer + " holds it"
		}
		p.add(c, reason)
	}
	return nil
}

// refuse returns exitNo, and prints why, while a controller of the instance
// runs. It would restore what is deleted. --force accepts that, and
// --out-of-scope deletes only what no controller restores.
func (p *purge) refuse(ctx context.Context) error {
	if p.force || p.outOfScope {
		return nil
	}
	deployments, err := p.Client.AppsV1().Deployments("").List(ctx, ofControllers)
	// An error leaves open whether a controller runs. It matters only if none is
	// found that does. A Pod that ends is not counted any more: it restores a copy
	// at most, and the command can be repeated.
	for _, d := range deployments.Items {
		of, _ := newSettingsFlags().settingsOf(&d) // as far as they can be read
		if of.sharesCopiesWith(p.settings) && d.Status.Replicas > 0 {
			p.say(fmt.Sprintf("Refused: the controller of Deployment %s runs, and would restore "+
				"copies. Stop it before: kubectl -n %s scale deployment %s --replicas=0",
				keyOf(&d), d.Namespace, d.Name))
			return exitNo
		}
	}
	if err != nil {
		return fmt.Errorf("cannot check that no controller runs: %w: "+
			"--force goes on without that", err)
	}
	return nil
}

// confirm returns exitNo unless the user says yes. Before it asks, the list has
// to be there, and before copies are deleted without asking, too: if nobody can
// read it, because the disk is full, nothing is deleted.
func (p *purge) confirm() error {
	err := p.cmd.OutOrStdout().(*bufio.Writer).Flush() // run has made the writer
	if err != nil || p.yes {
		return err
	}
	fmt.Fprintf(p.cmd.ErrOrStderr(), "Delete these copies of instance %s (%d)? [y/N] ",
		p.Rules.Instance(), len(p.Targets))
	line, _ := bufio.NewReader(p.cmd.InOrStdin()).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	if answer == "y" || answer == "yes" {
		return nil
	}
	p.say("Nothing was changed. --yes answers the question.")
	return exitNo
}

// delete deletes the copies that are still as they were listed. It returns
// exitNo if not all are gone.
func (p *purge) delete(ctx context.Context) error {
	var workers errgroup.Group
	workers.SetLimit(32) // enough for a thousand a second, and few for an API server
	var gone atomic.Int64
	for _, row := range p.Targets {
		workers.Go(func() error {
			have := row.decision.Have
			// A copy that has changed since it was listed causes a conflict: it
			// may have been released.
			unchanged := &metav1.Preconditions{
				UID:             &have.UID,
				ResourceVersion: &have.ResourceVersion,
			}
			err := p.Client.CoreV1().ConfigMaps(row.Namespace).
				Delete(ctx, row.Name, metav1.DeleteOptions{Preconditions: unchanged})
			isGone := apierrors.IsNotFound(err) || err == nil && len(have.Finalizers) == 0
			if isGone {
				gone.Add(1)
				return nil
			}
			return cmp.Or(err, errors.New(row.Reason)) // the reason names the finalizer
		})
	}
	failed := workers.Wait() // the first error
	all := int64(len(p.Targets))
	text := fmt.Sprintf("Deleted %d of %d copies", gone.Load(), all)
	if failed != nil {
		text += fmt.Sprintf("; failed: %d, the first because of: %v: run the command again",
			all-gone.Load(), failed)
	}
	p.say(text + ".")
	return verdict(gone.Load() == all)
}
