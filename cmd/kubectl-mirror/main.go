// Command kubectl-mirror is the plug-in `kubectl mirror`: it shows what the controller has done and what it would do,
// and why. It reads the cluster and decides with package plan, as the controller does.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways in which kubectl signs in
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// exitCode ends a command that has said all there is to say.
type exitCode int

const (
	exitYes     exitCode = iota // all in sync, nothing to do
	exitNo                      // out of sync, something to do
	exitUnknown                 // wrong usage, or the cluster could not be asked
)

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// verdict ends a command that answers yes or no.
func verdict(yes bool) exitCode {
	if yes {
		return exitYes
	}
	return exitNo
}

// main leaves signals to Go: Ctrl-C, or a closed pipe, ends the process at once. A purge may have deleted some of the
// copies then, and goes on where it is run again.
func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program. It returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out, root := bufio.NewWriter(stdout), newRoot() //nolint:contextcheck // commands get it from cobra
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err, code := root.ExecuteContext(ctx), exitYes
	if errors.As(err, &code) {
		err = nil
	}
	if err = cmp.Or(err, out.Flush()); err == nil {
		return int(code)
	}
	switch {
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the API server refuses the credentials: log in again, or choose another kubeconfig: %w", err)
	case utilnet.IsConnectionRefused(err):
		err = fmt.Errorf("no API server answers: start it, or choose another kubeconfig, host or port: %w", err)
	}
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' }) {
		fmt.Fprintf(stderr, "%s: %s\n", displayName, printable(line))
	}
	return int(exitUnknown)
}

const program, displayName = "kubectl-mirror", "kubectl mirror"

// stamp is the version that the Makefile sets (-ldflags "-X main.stamp=v1.2.3").
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only purge
changes anything.

The settings are the arguments of the Deployment of the installed controller; see also kubectl mirror plan --help.
A user who may see no more than a namespace gets by with the reports of the controller.`

// cli is what all commands share.
type cli struct {
	kube *genericclioptions.ConfigFlags
}

func newRoot() *cobra.Command {
	c := &cli{kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use: program, Short: "Show what mirror-controller has done and would do", Long: longHelp,
		Version: stamped.Of(stamp), SilenceErrors: true, SilenceUsage: true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	root.SetUsageTemplate(strings.NewReplacer("\nFlags:", "\nFlags{{if not .HasParent}} of kubectl{{end}}:",
		"Global Flags", "Flags of kubectl").Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c))
	return root
}

// command completes a command about some ConfigMaps, all of a namespace, or the whole cluster, and prints as -o says.
func (c *cli) command(cmd *cobra.Command, wholeCluster bool,
	run func(context.Context, *session, []types.NamespacedName) (printed, error)) *cobra.Command {
	var format string
	settings := newSettingsFlags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(outputFormats, format) {
			return fmt.Errorf("--output=%q: must be one of: %s", format, strings.Join(outputFormats, ", "))
		}
		if wholeCluster && *c.kube.Namespace != "" {
			return fmt.Errorf("--namespace=%q: the command is about the whole cluster: leave it out", *c.kube.Namespace)
		}
		keys, err := c.parseKeys(args)
		if err != nil {
			return err
		}
		s, err := c.begin(cmd, settings, wholeCluster)
		if err != nil {
			return err
		}
		p, err := run(cmd.Context(), s, keys)
		if err == nil {
			printAs(cmd.OutOrStdout(), format, p)
			err = p.end()
		}
		return err
	}
	cmd.Flags().AddFlagSet(settings.FlagSet)
	cmd.Flags().StringVarP(&format, "output", "o", outputFormats[0],
		"Output format, one of: "+strings.Join(outputFormats, ", ")+".")
	return cmd
}

// client returns a client for the cluster that the flags of kubectl name, as another user if one is given.
func (c *cli) client(as string) (kubernetes.Interface, error) {
	config, err := c.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = program + "/" + stamped.Of(stamp)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1 // no throttle of our own: few requests are in flight at a time
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Impersonate.UserName = cmp.Or(as, config.Impersonate.UserName)
	return kubernetes.NewForConfig(config)
}

// parseKeys parses NAMESPACE/NAME, or a name or, as kubectl prints it, configmap/NAME, which are in the namespace of -n
// or of the context.
func (c *cli) parseKeys(args []string) (keys []types.NamespacedName, err error) {
	for _, arg := range args {
		key, wrong := cache.ParseObjectName(strings.TrimPrefix(arg, "configmap/"))
		switch {
		case wrong != nil || key.Name == "":
			return nil, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
		case key.Namespace == "":
			key.Namespace, _, err = c.kube.ToRawKubeConfigLoader().Namespace()
		case *c.kube.Namespace != "" && *c.kube.Namespace != key.Namespace:
			return nil, fmt.Errorf("%q: is not in --namespace=%q: give one of the two", arg, *c.kube.Namespace)
		}
		keys = append(keys, key.AsNamespacedName())
	}
	return keys, err
}

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	*snapshot.Reader
	settings *settings
	cmd      *cobra.Command
	said     map[string]bool
	narrowed error // not nil if the user may see no more than a namespace
}

// begin returns a session. A user who may see no more than a namespace has one that goes by the flags alone, but for a
// command that is about the whole cluster.
func (c *cli) begin(cmd *cobra.Command, flags *settingsFlags, wholeCluster bool) (*session, error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	s := &session{cmd: cmd, said: map[string]bool{}}
	s.settings, err = flags.find(cmd.Context(), client)
	if apierrors.IsForbidden(err) && !wholeCluster {
		s.settings, s.narrowed, err = flags.alone, err, nil
	}
	if err != nil {
		return nil, err
	}
	s.Reader = &snapshot.Reader{Client: client, Rules: plan.NewRules(&s.settings.Options.Options)}
	if runs, err := s.settings.runs(cmd.Context(), client); err == nil && !runs {
		s.say(fmt.Sprintf("No controller runs: Deployment %s has no ready replica, and none holds the Lease.",
			keyOf(s.settings.deployment)))
	}
	return s, nil
}

// say prints a line on stderr, unless it is empty or was printed before.
func (s *session) say(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.cmd.ErrOrStderr(), printable(line))
	}
}

// outputFormats are the values of -o. The first one is the default.
var outputFormats = []string{"table", "json"}

// printed is what a command has to print, in every form. The writer keeps its errors until it is flushed.
type printed interface {
	table(w io.Writer)
	end() error // ends the command, after it is printed
}

// printAs prints in one of the formats.
func printAs(w io.Writer, format string, p printed) {
	if format != "json" {
		p.table(w)
		return
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(p) // fails as the writer does
}

// printTable prints rows as kubectl does, without the columns that are empty, or 0, in all rows.
func printTable(w io.Writer, columns []string, rows [][]any) {
	if len(rows) == 0 {
		return // not even a header
	}
	t := &metav1.Table{Rows: make([]metav1.TableRow, len(rows))}
	for i, name := range columns {
		if !slices.ContainsFunc(rows, func(row []any) bool { return row[i] != "" && row[i] != 0 }) {
			continue
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
		for j, row := range rows {
			t.Rows[j].Cells = append(t.Rows[j].Cells, printable(fmt.Sprint(row[i])))
		}
	}
	_ = printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(t, w) // fails as the writer does
}

// printLines prints the lines that are not empty.
func printLines(w io.Writer, lines ...string) {
	for _, line := range lines {
		if line != "" {
			fmt.Fprintln(w, printable(line))
		}
	}
}

// printable escapes what a terminal could take for more than text: anybody may write an annotation, or the error of a
// webhook.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}
