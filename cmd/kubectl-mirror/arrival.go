package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Answers to the question whether the content of a source has arrived.
const (
	inSync      = "in sync"
	notYet      = "not yet"
	notMirrored = "not mirrored"
	notKnown    = "not known"
)

// arrival is what the events of the controller tell of a source, to whoever may read these and the source, and nothing else.
type arrival struct {
	Source   string              `json:"source"`
	Answer   string              `json:"answer"`
	Detail   string              `json:"detail"`
	Synced   int                 `json:"synced"`
	Held     int                 `json:"held"`
	Blocked  int                 `json:"blocked"`
	Reported *metav1.Time        `json:"reported,omitempty"`
	Warnings []*snapshot.Warning `json:"warnings"`
}

// judge compares a source with what a controller has reported about it; nil: nothing. byPayload says that the flags which decide
// about copied metadata are not known.
func judge(s *plan.Source, byPayload bool, instance string, reports *snapshot.Reports, now time.Time) *arrival {
	reports = cmp.Or(reports, &snapshot.Reports{})
	a := &arrival{Source: s.Key.String(), Warnings: reports.Warnings()}
	mirrored := reports.Newest[plan.ReasonMirrored]
	if status, note := snapshot.StatusOf(s); status != snapshot.InSync {
		a.Answer, a.Detail = notMirrored, note
		return a
	}
	if mirrored == nil {
		a.Answer, a.Detail = notKnown, fmt.Sprintf("no report of a controller of instance %s; events are kept for an hour", instance)
		if len(reports.Others) > 0 {
			a.Detail += ". A controller of another instance has reported: --instance=" + reports.Others[0]
		}
		return a
	}
	a.Synced, a.Held, a.Blocked = reports.Number(plan.EventSynced), reports.Number(plan.EventHeld), reports.Number(plan.EventBlocked)
	a.Reported = &mirrored.LastTimestamp
	ago := duration.HumanDuration(max(0, now.Sub(a.Reported.Time))) + " ago"
	arrived := mirrored.Annotations[plan.ChecksumAnnotation] == s.Checksum
	if byPayload {
		arrived = mirrored.Annotations[plan.EventPayload] == s.Payload()
	}
	switch {
	case !arrived:
		a.Answer, a.Detail = notYet, "the newest report, "+ago+", is of other content"
	case a.Held > 0 && s.HeldBy() == "":
		a.Answer, a.Detail = notYet, "by the newest report, "+ago+", targets were held, and no annotation holds them any more"
	default:
		a.Answer, a.Detail = inSync, fmt.Sprintf("in %s, as the controller reported %s", count(a.Synced, "namespace", "namespaces"), ago)
		if a.Held > 0 {
			a.Detail += fmt.Sprintf("; %s held by %s", count(a.Held, "is", "are"), s.HeldBy())
		}
		if a.Blocked > 0 {
			a.Detail += fmt.Sprintf("; %s blocked", count(a.Blocked, "is", "are"))
		}
	}
	return a
}

// phase returns how far the source is.
func (a *arrival) phase(allow allowed) phase {
	switch {
	case a.Answer == notMirrored, a.Answer == inSync && a.Blocked > 0 && !allow.blocked:
		return waitBlocked
	case a.Answer != inSync:
		return waitOn
	case a.Held > 0 && a.Synced == 0 && !allow.held:
		return waitHeld
	}
	return waitDone
}

func (a *arrival) verdict() error {
	if a.Answer == notKnown {
		return errUnknown
	}
	return verdict(a.Answer == inSync && a.Held+a.Blocked == 0)
}

func (a *arrival) names() []string { return nil }

func (a *arrival) table(w io.Writer, _ bool) error {
	text := a.Source + ": " + a.Answer + ": " + a.Detail
	if a.Answer == inSync {
		text = a.Source + ": " + a.Answer + " " + a.Detail
	}
	lines := []string{text}
	for _, warning := range a.Warnings {
		lines = append(lines, warning.String())
	}
	return printLines(w, lines)
}

// owner is a session of a user who may see no more than one namespace.
type owner struct {
	*session
	byPayload bool
}

// owned returns a session for a user to whom why says that the cluster is hidden, and says so. It returns why if it is another
// error.
func (c *cli) owned(cmd *cobra.Command, s *session, why error) (*owner, error) {
	if !apierrors.IsForbidden(why) {
		return nil, why
	}
	byPayload := s == nil && !slices.ContainsFunc(c.settings.given(), func(flag string) bool { return strings.HasPrefix(flag, "--copy-") })
	if s == nil {
		client, err := c.client("")
		if err != nil {
			return nil, err
		}
		s = newSession(cmd, client, c.settings.alone)
	}
	s.say("Only what is in the namespace counts: " + why.Error())
	return &owner{s, byPayload}, nil
}

// arrival returns what the events tell of a source.
func (o *owner) arrival(ctx context.Context, asked types.NamespacedName) (*arrival, error) {
	cm, err := o.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	if cm == nil || !o.Rules.AsksToBeMirrored(cm) {
		return nil, o.noSource(asked)
	}
	reports, err := o.Reports(ctx, asked.Namespace, cm.UID)
	if apierrors.IsForbidden(err) {
		return &arrival{Source: asked.String(), Answer: notKnown, Detail: err.Error(), Warnings: []*snapshot.Warning{}}, nil
	}
	return judge(o.Rules.ParseSource(cm), o.byPayload, o.settings.Instance, reports[cm.UID], time.Now()), err
}

// explain says what a ConfigMap is, by itself.
func (o *owner) explain(ctx context.Context, asked types.NamespacedName) (printed, error) {
	cm, err := o.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	if cm != nil && o.Rules.AsksToBeMirrored(cm) {
		return o.arrival(ctx, asked)
	}
	return explainAlone(o.settings, asked, cm), nil
}

// explainAlone explains a ConfigMap that is no source; cm is nil if there is none.
func explainAlone(settings *settings, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	x := &explanation{Subject: "configmap/" + key.String(), name: nameOf(key)}
	if cm == nil {
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s.", key)
		return x
	}
	source, names := plan.NamedSource(cm)
	if plan.NamesItself(cm) && names {
		x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s", key, source, cm.Annotations[plan.InstanceAnnotation])
		if plan.MatchesChecksum(cm, settings.Label) {
			x.Verdict += ", and its content matches its checksum."
		} else {
			x.Verdict += ". Somebody has edited it: its content does not match its checksum. The controller restores it while the source wants a copy here."
		}
		x.Remedy = "ask the owner of " + source.String() + " to leave your namespace out, or opt out of all copies: " +
			optOut(key.Namespace, settings.Label)
		return x
	}
	x.Verdict = fmt.Sprintf("ConfigMap %s is no copy: no controller changes or deletes it. While it is there, nothing is copied to its name.", key)
	if why, adoptable := plan.NewRules(&settings.Options.Options).Foreign(cm); adoptable {
		x.Remedy = handOver(key)
	} else {
		x.Verdict += " But " + why + "."
	}
	return x
}

// handOver is the command that hands a foreign ConfigMap over.
func handOver(k types.NamespacedName) string {
	return fmt.Sprintf("delete or rename it, or hand it over, which REPLACES ITS DATA: kubectl annotate -n %s configmap %s %s=%s", k.Namespace, k.Name, plan.AdoptAnnotation, plan.AdoptValue)
}

// optOut is the command by which a namespace opts out.
func optOut(namespace, label string) string {
	return fmt.Sprintf("kubectl label namespace %s %s=%s", namespace, label, plan.OptOutValue)
}
