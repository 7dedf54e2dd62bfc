package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const purgeHelp = `Delete all copies of an instance, or those of one source. SOURCE is a name or NAMESPACE/NAME, and need not exist any more.
The command shows the list and asks. It deletes only what is a copy of this instance, as the controller knows it: nothing that
has changed since it was listed, and no copy that lost its label, which counts as released. It can be interrupted and repeated.

It refuses while a controller of the instance runs and a source asks for the copies: the controller would restore them. It
refuses, too, where the API server refuses a deletion by dry-run, such as by the policy that protects copies. --force tries
nevertheless.

Permissions: list and delete ConfigMaps, list namespaces. To find controllers: list ClusterRoleBindings and Deployments, and get
the Lease of each.

Exit codes: 0 all gone, or nothing to delete; 1 refused, not confirmed or not all gone; 2 unknown.`

func newPurge(c *cli) *cobra.Command {
	var output outputFlag
	var yes, dryRun, force bool
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
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			found, err := snapshot.Retry(func() (*purgeable, error) { return c.purgeable(cmd.Context(), s, asked) })
			if err == nil && len(found.Copies) > 0 {
				err = s.object(cmd.Context(), found, dryRun || force)
			}
			if err != nil {
				return err
			}
			if err := output.print(cmd.OutOrStdout(), found); err != nil || dryRun || len(found.Copies) == 0 {
				return err
			}
			if err := confirm(cmd, yes, fmt.Sprintf("Delete %s?", found.summary())); err != nil {
				return err
			}
			return s.delete(cmd.Context(), found.Copies)
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask.")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show the list, and what would keep it from being deleted, and delete nothing.")
	cmd.Flags().BoolVar(&force, "force", false, "Delete although a controller would restore the copies, or the API server refuses a dry-run.")
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

	asked   types.NamespacedName
	sources []*corev1.ConfigMap // that ask to be mirrored, without content
}

// oneCopy is a copy as it was listed.
type oneCopy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source"`
	Note      string `json:"note,omitempty"`

	uid     types.UID
	version string
}

func (c *oneCopy) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// purgeable returns the copies of a source, or of all if asked is empty. It reads no content. A copy that lost its label counts
// as released, and is not among them.
func (c *cli) purgeable(ctx context.Context, s *session, asked types.NamespacedName) (*purgeable, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	f := &purgeable{Settings: s.settings.Origin, Instance: s.settings.Instance, Copies: []*oneCopy{}, asked: asked}
	list := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List
	err = snapshot.Each(ctx, list, s.Labelled(asked.Name), func(m *metav1.PartialObjectMetadata) {
		cm := &corev1.ConfigMap{ObjectMeta: m.ObjectMeta}
		source, ours := s.Rules.SourceOf(cm)
		switch {
		case s.Rules.AsksToBeMirrored(cm):
			f.sources = append(f.sources, cm)
		case ours && (asked.Name == "" || asked == source):
			note := ""
			if len(m.Finalizers) > 0 {
				note = "the finalizer " + printable(m.Finalizers[0]) + " holds it"
			}
			f.Copies = append(f.Copies, &oneCopy{m.Namespace, m.Name, source.String(), note, m.UID, m.ResourceVersion})
		}
	})
	slices.SortFunc(f.Copies, func(a, b *oneCopy) int { return strings.Compare(a.key().String(), b.key().String()) })
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	return f, nil
}

// object says what keeps the copies from being deleted, and returns errNo then, unless that is to be said only.
func (s *session) object(ctx context.Context, found *purgeable, only bool) error {
	objections, err := s.objections(ctx, found)
	switch {
	case isHidden(err) && only:
		s.say("Not checked: " + err.Error())
	case isHidden(err):
		return fmt.Errorf("cannot check that nothing keeps the copies from being deleted: %w: --force goes on without that", err)
	case err != nil:
		return err
	}
	for _, o := range objections {
		s.say(map[bool]string{true: "Objection: ", false: "Refused: "}[only] + o)
	}
	if len(objections) > 0 && !only {
		return errNo
	}
	return nil
}

// objections returns why the copies should not be deleted now, each with what would change that.
func (s *session) objections(ctx context.Context, found *purgeable) (out []string, err error) {
	firsts := slices.CompactFunc(slices.Clone(found.Copies), func(a, b *oneCopy) bool { return a.Namespace == b.Namespace })
	tried := s.deleteEach(ctx, firsts, metav1.DryRunAll)
	if i := slices.IndexFunc(tried, isRefused); i >= 0 {
		out = append(out, "a deletion by dry-run was refused: "+tried[i].Error()+howToLift(tried[i]))
	}
	if len(found.sources) == 0 {
		return out, nil
	}
	all, hidden, err := installation.List(ctx, s.Client, "")
	if err != nil {
		return out, err
	}
	if len(all) == 0 && hidden != nil {
		return out, hidden
	}
	namespaces, err := s.Namespaces(ctx)
	if err != nil {
		return out, err
	}
	for _, in := range all {
		wanted := s.wanted(in, found, namespaces)
		if wanted == 0 {
			continue
		}
		by, err := in.Restorer(ctx, s.Client)
		if err != nil {
			return out, err
		}
		if by != "" {
			out = append(out, fmt.Sprintf("Controller %s would restore %d of %d copies: %s. Take the label off the sources (kubectl -n NAMESPACE "+
				"label configmap NAME %s-), or stop the controller", in.Key, wanted, len(found.Copies), by, s.settings.Label))
		}
	}
	return out, nil
}

// wanted returns how many of the copies a controller would restore. If its settings are malformed, they may be those of the
// session.
func (s *session) wanted(in *installation.Installation, found *purgeable, namespaces map[string]*corev1.Namespace) (n int) {
	rules := s.Rules
	if own, err := in.Settings(); err == nil {
		if rules = own.Rules(); own.Instance != s.settings.Instance || own.Label != s.settings.Label {
			return 0
		}
	}
	sources := map[string][]*plan.Source{}
	for _, cm := range found.sources {
		sources[cm.Name] = append(sources[cm.Name], rules.ParseSource(cm))
	}
	for _, c := range found.Copies {
		if ns := namespaces[c.Namespace]; ns != nil && rules.Winner(plan.NewView(sources[c.Name]), ns) != nil {
			n++
		}
	}
	return n
}

// policyRefusal is how the API server names the binding of our policy that has refused a request.
var policyRefusal = regexp.MustCompile(`ValidatingAdmissionPolicy '[^']*' with binding '([-.a-z0-9]*-protected-copies)'`)

// howToLift names the command that lifts a policy which has refused a deletion; empty if something else has.
func howToLift(refused error) string {
	m := policyRefusal.FindStringSubmatch(refused.Error())
	if m == nil {
		return ""
	}
	return ". To lift the policy: kubectl delete validatingadmissionpolicybinding " + m[1]
}

// confirm returns nil if the answer is yes, and errNo if it is no. It flushes the output first: if nobody reads that, the program
// ends here, before it changes anything.
func confirm(cmd *cobra.Command, yes bool, question string) error {
	if err := flush(cmd.OutOrStdout()); err != nil || yes {
		return err
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

// parallelDeletions is how many deletions are in flight: enough for a thousand a second, and few for an API server.
const parallelDeletions = 32

// delete deletes the copies and says what has come of it. It returns errNo if not all are gone.
func (s *session) delete(ctx context.Context, copies []*oneCopy) error {
	gone, changed := 0, 0
	var failed error
	for _, err := range s.deleteEach(ctx, copies) {
		switch {
		case err == nil, apierrors.IsNotFound(err):
			gone++
		case apierrors.IsConflict(err):
			changed++
		case failed == nil:
			failed = err
		}
	}
	text := fmt.Sprintf("Deleted %d of %s", gone, count(len(copies), "copy", "copies"))
	if changed > 0 {
		text += fmt.Sprintf("; changed since they were listed, and left alone: %d. Run the command again", changed)
	}
	if failed != nil {
		text += fmt.Sprintf("; failed: %d, the first because of: %v%s", len(copies)-gone-changed, failed, howToLift(failed))
	}
	s.say(text + ".")
	return verdict(gone == len(copies))
}

// isRefused reports whether the API server refuses a deletion by its policies, webhooks or RBAC, and not because the copy has
// changed or the API server is busy.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return 400 <= code && code < 500
	}
}

// deleteEach deletes the copies that are still as they were listed, and returns what came of each. A dry run ends when the API
// server refuses one.
func (s *session) deleteEach(ctx context.Context, copies []*oneCopy, dryRun ...string) []error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make([]error, len(copies))
	places := make(chan struct{}, parallelDeletions)
	var workers sync.WaitGroup
	for i, c := range copies {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() {
			results[i] = s.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &c.uid, ResourceVersion: &c.version}, DryRun: dryRun,
			})
			if dryRun != nil && isRefused(results[i]) {
				stop()
			}
			<-places
		})
	}
	workers.Wait()
	return results
}

func (f *purgeable) names() (names []string) {
	for _, c := range f.Copies {
		names = append(names, nameOf(c.key()))
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
		rows = append(rows, []any{c.key().String(), c.Source, c.Note})
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
