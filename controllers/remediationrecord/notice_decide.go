package remediationrecord

import (
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

// Reported is what was reported of an open record, and since when it waits for what it waits for now. After a restart nothing is known of that, and what is
// waited for is reported once more.
type Reported struct {
	now   Notice
	since time.Time
	at    map[Notice]time.Time
}

// Report returns what is to be reported of a record that is to go on as p says, and remembers it as reported.
func (t *Reported) Report(f *Facts, p *Plan) []Notice {
	switch {
	case f.Paused || !f.Status.Ended.IsZero():
		return nil
	case !p.Status.Ended.IsZero():
		return ending(&p.Status)
	case p.Waiting == "" || p.Over:
		t.now = Notice{}
		return nil
	}
	var all []Notice
	if is := (Notice{Awaited, p.Waiting, p.Object}); t.lasts(is, f.Now) && t.mayBeReported(is, f.Now) {
		all = append(all, is)
	}
	if is := (Notice{Late, p.Waiting, p.Object}); p.Overdue && t.mayBeReported(is, f.Now) {
		all = append(all, is)
	}
	return all
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

// lasts reports whether is has been waited for long enough to be reported, and was not reported since that began.
func (t *Reported) lasts(is Notice, now time.Time) bool {
	if t.now != is {
		t.now, t.since = is, now
	}
	return !now.Before(t.since.Add(lasting)) && t.at[is].Before(t.since)
}

// mayBeReported reports whether is was not reported lately, nor too much else, and remembers it as reported.
func (t *Reported) mayBeReported(is Notice, now time.Time) bool {
	for other, at := range t.at {
		if now.Sub(at) >= silence && other.News == Awaited && other != is {
			delete(t.at, other)
		}
	}
	at, reported := t.at[is]
	if reported && (is.News == Late || now.Sub(at) < silence) || len(t.at) >= mostNotices {
		return false
	}
	if t.at == nil {
		t.at = map[Notice]time.Time{}
	}
	t.at[is] = now
	return true
}
