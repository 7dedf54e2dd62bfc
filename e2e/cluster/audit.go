package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// AuditLog is what the API server notes about requests of ServiceAccounts outside kube-system: each once, watches when
// they have begun, everything else when it is done.
//
// The server writes the line of a request before it ends its answer. Whoever has read the answer of its own
// request finds the line in the log, without waiting. The effect of a request of another process can be seen a moment
// before its line.
//
// A client may cut a write while etcd carries it out. Then the line has code 504, though the write took effect. So the
// number of accepted writes in the log can be smaller than that of writes that took effect, but no write lacks its
// line.
//
// It is the path of its file. Its policy is auditPolicy.
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

// auditPolicy logs each request of a ServiceAccount outside kube-system once: watches when they have begun, as they may
// not end before the test does, and everything else when it is done, at a level that is to be filled in.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
	{"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
	{"level": "Metadata", "userGroups": ["system:serviceaccounts"], "verbs": ["watch"],
		"omitStages": ["RequestReceived", "ResponseComplete"]},
	{"level": %q, "userGroups": ["system:serviceaccounts"], "omitStages": ["RequestReceived", "ResponseStarted"]}]}`
