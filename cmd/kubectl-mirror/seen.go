package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// seen is what a user who may see one namespace only can know of a ConfigMap in it: by the object itself, and by the events of
// the controller.
type seen struct {
	ConfigMap string   `json:"configMap"`
	Lines     []string `json:"lines"`
}

// seen returns what the user can know of a ConfigMap, after why says that the cluster is hidden. It says on stderr which role
// shows more. If it can say nothing it returns why.
func (c *cli) seen(cmd *cobra.Command, asked types.NamespacedName, why error) (*seen, error) {
	if !isHidden(why) || asked.Name == "" {
		return &seen{}, why
	}
	client, err := c.client("")
	if err != nil {
		return &seen{}, err
	}
	s := newSession(cmd, client, c.settings.Default())
	cm, err := s.Get(cmd.Context(), asked)
	if err != nil {
		return &seen{}, why
	}
	if !c.hidden { // --watch comes again
		s.say("Not all can be seen: " + why.Error())
		s.say("The ClusterRole mirror-controller-viewer (of a chart: RELEASE-mirror-controller-viewer) shows all.")
		c.hidden = true
	}
	out := &seen{ConfigMap: asked.String()}
	switch {
	case cm == nil:
		out.say("There is no ConfigMap %s.", asked)
	case s.Rules.AsksToBeMirrored(cm):
		err = s.seenSource(cmd.Context(), out, cm)
	case plan.NamesItself(cm):
		s.seenCopy(out, cm)
	case len(cm.Finalizers) > 0:
		out.say("ConfigMap %s is no copy, by the label %s: no controller changes or deletes it. "+
			"It has the finalizer %s, and cannot be handed over.", asked, s.settings.Label, cm.Finalizers[0])
	case cm.Annotations[plan.AdoptAnnotation] == plan.AdoptValue:
		out.say("ConfigMap %s is no copy, and handed over: a source of that name REPLACES ITS DATA. "+
			"To take it back: kubectl annotate -n %s configmap %s %s-", asked, asked.Namespace, asked.Name, plan.AdoptAnnotation)
	default:
		out.say("ConfigMap %s is no copy, by the label %s: no controller changes or deletes it. While it is there, nothing is copied to its name.",
			asked, s.settings.Label)
		out.say("To hand it over to a source of that name (this REPLACES ITS DATA): %s", handOver(asked))
	}
	return out, err
}

func (s *seen) say(format string, args ...any) {
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

// seenSource says what the controller has reported about a source.
func (s *session) seenSource(ctx context.Context, out *seen, cm *corev1.ConfigMap) error {
	out.say("ConfigMap %s asks to be mirrored.", plan.KeyOf(cm))
	events, err := s.Reported(ctx, cm)
	if apierrors.IsForbidden(err) {
		out.say("What the controller has reported is in its events, which you may not list.")
		return nil
	}
	if len(events) == 0 && err == nil {
		out.say("The controller has reported nothing about it in the time that events are kept.")
	}
	for _, e := range events {
		out.say("%s: %s %s: %s", e.LastTimestamp.UTC().Format(time.RFC3339), e.Type, e.Reason, e.Message)
	}
	return err
}

// seenCopy says whose copy a ConfigMap is, and whether it was edited.
func (s *session) seenCopy(out *seen, cm *corev1.ConfigMap) {
	source, ok := plan.NamedSource(cm)
	if !ok {
		out.say("ConfigMap %s has the annotations of a copy, and they name no source of its name: it is no copy.", plan.KeyOf(cm))
		return
	}
	out.say("ConfigMap %s is a copy of %s, by its annotations, of instance %s.", plan.KeyOf(cm), source, cm.Annotations[plan.InstanceAnnotation])
	if plan.MatchesChecksum(cm, s.settings.Label) {
		out.say("Its content matches its checksum.")
	} else {
		out.say("Its content does not match its checksum: somebody has edited it. The controller restores it while the source wants a copy here.")
	}
	out.say("To keep a ConfigMap of your own under this name, ask the owner of %s to leave your namespace out, or opt out of all copies: "+
		"kubectl label namespace %s %s=%s", source, cm.Namespace, s.settings.Label, plan.OptOutValue)
}

// handOver is the command that hands a foreign ConfigMap over.
func handOver(k types.NamespacedName) string {
	return fmt.Sprintf("kubectl annotate -n %s configmap %s %s=%s", k.Namespace, k.Name, plan.AdoptAnnotation, plan.AdoptValue)
}

// verdict is unknown: no state is taken from the text of an event.
func (s *seen) verdict() error { return errUnknown }

func (s *seen) names() []string { return nil }

func (s *seen) table(w io.Writer, _ bool) error {
	_, err := io.WriteString(w, printableLines(strings.Join(s.Lines, "\n")+"\n"))
	return err
}
