package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditLog is what the API server notes about requests of ServiceAccounts outside kube-system: each once, watches when
// they have begun, everything else when it is done.
//
// The server writes the line of a request before it ends its answer. Whoever has read the answer of its own
// request finds the line in the log, without waiting. For requests of another process that does not hold: their
// effect can be seen a moment before their line. WaitFor is for those.
//
// A client may cut a write while etcd carries it out. Then the line has code 504, though the write took effect. So the
// number of accepted writes in the log can be smaller than that of writes that took effect, but no write lacks its
// line.
//
// It is the path of its file, which need not be there yet. Its policy is that of WriteAuditPolicy.
type AuditLog string

// Mark is a position in the log: the number of bytes before it.
type Mark int64

// Event is a request as the audit log has it. Namespace, name and resource are empty where the request has
// none: requests for no object, and names in lists and watches.
type Event struct {
	Stage string `json:"stage"` // ResponseStarted for watches, ResponseComplete for everything else
	Verb  string `json:"verb"`  // as RBAC knows it: get, list, watch, create, update, patch, delete, deletecollection
	User  struct {
		Username string              `json:"username"`
		Groups   []string            `json:"groups"`
		Extra    map[string][]string `json:"extra"` // of a Pod's token: authentication.kubernetes.io/pod-name
	} `json:"user"`
	As struct { // whom the user impersonates
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"` // of HTTP
		Message string `json:"message"`
	} `json:"responseStatus"`
	RequestURI string    `json:"requestURI"` // path and query
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Done       time.Time `json:"stageTimestamp"` // for watches: begun
	// Sent and Answer are the bodies of the request and of the answer, as JSON, with Options.Recorded.
	Sent   json.RawMessage `json:"requestObject"`
	Answer json.RawMessage `json:"responseObject"`
}

// String is the event in a line for people.
func (e Event) String() string {
	return fmt.Sprintf("%s %s %s -> %d", e.User.Username, e.Verb, e.RequestURI, e.Response.Code)
}

// longestLine is more than a line of the log ever has, in bytes.
const longestLine = 1 << 20

// Mark returns the end of the log: Since returns what comes after it. It reads only the last lines, because a log of a
// million requests is larger than a gigabyte.
func (l AuditLog) Mark() (Mark, error) {
	info, err := os.Stat(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the server creates it with the first line
	}
	if err != nil {
		return 0, err
	}
	from := Mark(max(0, info.Size()-longestLine))
	lines, err := l.lines(from)
	return from + Mark(len(lines)), err
}

// Since returns the requests noted after the mark, in the order in which they were, and the mark to go on from.
// A line that is being written is left for the next call.
func (l AuditLog) Since(mark Mark) ([]Event, Mark, error) {
	lines, err := l.lines(mark)
	if err != nil {
		return nil, mark, err
	}
	var events []Event
	for line := range bytes.Lines(lines) {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, mark, fmt.Errorf("read the audit log: %w", err)
		}
		events = append(events, e)
	}
	return events, mark + Mark(len(lines)), nil
}

// lines returns the whole lines after the mark.
func (l AuditLog) lines(mark Mark) ([]byte, error) {
	file, err := os.Open(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the server creates it with the first line
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(file)
	return content[:bytes.LastIndexByte(content, '\n')+1], err
}

// WaitFor waits until a request after the mark is one that is looked for, and returns all after the mark
// up to the end of the log at that moment.
func (l AuditLog) WaitFor(ctx context.Context, mark Mark, looked func(Event) bool) ([]Event, error) {
	var all []Event
	err := wait.PollUntilContextCancel(ctx, pollPeriod, true, func(context.Context) (bool, error) {
		more, next, err := l.Since(mark)
		if err != nil {
			return false, err
		}
		mark, all = next, append(all, more...)
		return slices.ContainsFunc(more, looked), nil
	})
	if err != nil {
		return all, fmt.Errorf("wait for a request in the audit log, with %d others seen: %w", len(all), err)
	}
	return all, nil
}

// WriteAuditPolicy writes an audit policy to a file: each request of a ServiceAccount outside kube-system is logged once,
// watches at the level Metadata and everything else at this one. A watch is logged when it has begun, as it may not end
// before the test does, everything else when it is done. Other requests are not logged.
func WriteAuditPolicy(file string, level auditv1.Level) error {
	accounts := []string{"system:serviceaccounts"}
	received, began, done := auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StageResponseComplete
	content, err := json.Marshal(auditv1.Policy{
		TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"},
		Rules: []auditv1.PolicyRule{
			{Level: auditv1.LevelNone, UserGroups: []string{"system:serviceaccounts:kube-system"}},
			{Level: auditv1.LevelMetadata, UserGroups: accounts, Verbs: []string{"watch"},
				OmitStages: []auditv1.Stage{received, done}},
			{Level: level, UserGroups: accounts, OmitStages: []auditv1.Stage{received, began}},
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}
