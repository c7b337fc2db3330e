package remediationrecord

import (
	"maps"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// News is what there may be to report of a record.
type News int

const (
	// Awaited says: the capacity waits for something else than was reported last.
	Awaited News = iota + 1
	// Late says: the moment has passed at which what is waited for was to end.
	Late
	// Back says: the capacity is back.
	Back
	// NotComing says: the remediation is over, and the capacity is not back.
	NotComing
)

// Notice is one thing to be reported, of what is waited for, or of how the remediation has ended.
type Notice struct {
	News   News
	Reason string
	Object mendv1.RecordRef
}

const (
	// lasting is how long something is waited for until it is reported: most passes by itself, one after the other.
	lasting = 30 * time.Second
	// silence is how long something is not reported again that alternates with something else.
	silence = time.Hour
	// mostNotices is how many waits are reported of one record within silence.
	mostNotices = 12
)

// Reported is when what was reported of an open record. After a restart nothing is known of that, and what is waited for is reported once more.
type Reported map[Notice]time.Time

// Report returns what is to be reported of a record that is to go on as p says, and remembers it as reported.
func (r Reported) Report(f *Facts, p *Plan) []Notice {
	switch {
	case f.Paused || !f.Status.Ended.IsZero():
		return nil
	case !p.Status.Ended.IsZero():
		return ending(&p.Status)
	case p.Waiting == "" || p.Over:
		return nil
	}
	var notices []Notice
	step := waitingFor(&p.Status)
	lasts := step != nil && step.Reason == p.Waiting && !f.Now.Before(step.Time.Add(lasting))
	if notice := (Notice{Awaited, p.Waiting, p.Object}); lasts && r.isNew(notice, step.Time.Time, f.Now) {
		notices = append(notices, notice)
	}
	if notice := (Notice{Late, p.Waiting, p.Object}); p.Overdue && r.isNew(notice, time.Time{}, f.Now) {
		notices = append(notices, notice)
	}
	return notices
}

// ending is what is reported of the end: one that was cancelled had no effect.
func ending(status *mendv1.RemediationRecordStatus) []Notice {
	switch status.Outcome {
	case mendv1.RecordHealed, mendv1.RecordReplaced:
		return []Notice{{News: Back, Reason: string(status.Outcome)}}
	case mendv1.RecordGone, mendv1.RecordGivenUp:
		return []Notice{{News: NotComing, Reason: string(status.Outcome)}}
	case mendv1.RecordCancelled:
	}
	return nil
}

// isNew reports whether a notice of what goes on since a moment was not reported since then, nor lately, nor too much else, and remembers it as reported.
func (r Reported) isNew(notice Notice, since, now time.Time) bool {
	maps.DeleteFunc(r, func(other Notice, at time.Time) bool {
		return other != notice && other.News == Awaited && now.Sub(at) >= silence
	})
	at, reported := r[notice]
	if reported && (!at.Before(since) || now.Sub(at) < silence) || len(r) >= mostNotices {
		return false
	}
	r[notice] = now
	return true
}
