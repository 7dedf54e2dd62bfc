package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const purgeHelp = `Delete all copies of an instance, or those of one source. SOURCE is a name or NAMESPACE/NAME, and need not exist any more.
The command shows the list and asks. It deletes only what is a copy of this instance, as the controller knows it: nothing that
has changed since it was listed, and no copy that lost its label, which counts as released. It can be interrupted and repeated.

It refuses while a controller of the instance is ready, which would restore copies that a source asks for. --force deletes them
nevertheless. --out-of-scope deletes only the copies that no source claims and that the flags rule out: no controller restores
these.

Permissions: list and delete ConfigMaps, list namespaces and Deployments.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed or not all gone; 2 unknown.`

func newPurge(c *cli) *cobra.Command {
	var output outputFlag
	var yes, dryRun, force, outOfScope bool
	cmd := &cobra.Command{
		Use:     "purge [SOURCE]",
		Short:   "Delete the copies of an instance, or of one source",
		Long:    purgeHelp,
		Example: "  kubectl mirror purge --dry-run\n  kubectl mirror purge platform/settings --yes",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var asked types.NamespacedName // an empty one: all copies of the instance
			err := c.refuseNamespace()     // would it be that of sources, or of copies?
			if len(args) == 1 {
				asked, err = c.parseKey(args[0])
			}
			if err != nil {
				return err
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			found, err := s.purgeable(cmd.Context(), asked, outOfScope)
			if err == nil {
				err = output.print(cmd.OutOrStdout(), found)
			}
			if err != nil || dryRun || len(found.Copies) == 0 {
				return err
			}
			if !force && !outOfScope {
				err = s.refuse(cmd.Context())
			}
			if err == nil {
				err = confirm(cmd, yes, fmt.Sprintf("Delete %s of instance %s?", count(len(found.Copies), "copy", "copies"), found.Instance))
			}
			if err == nil {
				err = s.delete(cmd.Context(), found.Copies)
			}
			return err
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show the list, and delete nothing.")
	cmd.Flags().BoolVar(&force, "force", false, "Delete although a controller of the instance is ready.")
	cmd.Flags().BoolVar(&outOfScope, "out-of-scope", false, "Delete only copies that no source claims and that the flags rule out.")
	return cmd
}

// purgeable is what there is to purge.
type purgeable struct {
	Instance string    `json:"instance"`
	Copies   []*change `json:"copies"`
}

// purgeable returns the copies of a source, or of all if asked is empty; with outOfScope those that the flags rule out.
func (s *session) purgeable(ctx context.Context, asked types.NamespacedName, outOfScope bool) (*purgeable, error) {
	options := s.settings.Options.Options
	options.Prune = false // with --prune no copy counts as out of scope
	s.Rules = plan.NewRules(&options)
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	f := &purgeable{Instance: options.Instance, Copies: []*change{}}
	for _, d := range snap.All() {
		if d.Have == nil || !s.Rules.Visible(d.Have) || outOfScope && d.State != plan.StateOutOfScope {
			continue
		}
		if source, ours := s.Rules.SourceOf(d.Have); ours && (asked.Name == "" || asked == source) {
			c := &change{Namespace: d.Key.Namespace, Name: d.Key.Name, Operation: plan.OpDelete.String(), Source: source.String(), decision: d}
			for _, finalizer := range d.Have.Finalizers {
				c.Reason = "the finalizer " + finalizer + " holds it"
			}
			f.Copies = append(f.Copies, c)
		}
	}
	return f, nil
}

// refuse returns errNo while a controller of the instance is ready, and says which.
func (s *session) refuse(ctx context.Context) error {
	deployments, err := deploymentsOf(ctx, s.Client, "")
	if err != nil {
		return fmt.Errorf("cannot check that no controller runs: %w: --force goes on without that", err)
	}
	if s.settings.deployment != nil { // it may lack the label
		deployments = append(deployments, *s.settings.deployment)
	}
	for i := range deployments {
		d := &deployments[i]
		p, _ := processOf(d) // with invalid arguments it is never ready
		if d.Status.ReadyReplicas > 0 && p.Instance == s.settings.Instance && p.Label == s.settings.Label {
			s.say(fmt.Sprintf("Refused: Deployment %s has ready replicas, and would restore the copies that a source asks for. Stop it before: "+
				"kubectl -n %s scale deployment %s --replicas=0", keyOf(d), d.Namespace, d.Name))
			return errNo
		}
	}
	return nil
}

// confirm returns nil if the answer is yes, and errNo if it is no. It flushes the output first: if nobody reads that, the program
// ends here, before it changes anything.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if out, ok := cmd.OutOrStdout().(*bufio.Writer); ok {
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return errors.New("stdin is not a terminal, so nobody can be asked: give --yes")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n') // an error is no answer
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "Nothing was changed.")
	return errNo
}

// delete deletes the copies that are still as they were listed, and says what has come of it. It returns errNo if not all are
// gone. So many deletions in flight are enough for a thousand a second, and few for an API server.
func (s *session) delete(ctx context.Context, copies []*change) error {
	var workers errgroup.Group
	workers.SetLimit(32)
	results := make([]error, len(copies))
	for i, c := range copies {
		workers.Go(func() error {
			have := c.decision.Have
			results[i] = s.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion},
			})
			return nil
		})
	}
	_ = workers.Wait() // the results tell
	gone, changed := 0, 0
	var failed error
	for _, err := range results {
		switch {
		case err == nil, apierrors.IsNotFound(err):
			gone++
		case apierrors.IsConflict(err):
			changed++
		default:
			failed = cmp.Or(failed, err)
		}
	}
	text := fmt.Sprintf("Deleted %d of %s", gone, count(len(copies), "copy", "copies"))
	if changed > 0 {
		text += fmt.Sprintf("; changed since they were listed, and left alone: %d. Run the command again", changed)
	}
	if failed != nil {
		text += fmt.Sprintf("; failed: %d, the first because of: %v", len(copies)-gone-changed, failed)
	}
	s.say(text + ".")
	return verdict(gone == len(copies))
}

func (f *purgeable) names() []string { return namesOf(f.Copies) }

func (f *purgeable) table(w io.Writer, wide bool) error {
	if len(f.Copies) == 0 {
		return printLines(w, []string{"Nothing to delete: instance " + f.Instance + " has no such copy."})
	}
	var rows [][]any
	for _, c := range f.Copies {
		rows = append(rows, []any{c.Namespace + "/" + c.Name, c.Source, printable(c.Reason)})
	}
	return printTable(w, wide, []string{"Copy", "Source", "Note"}, rows)
}
