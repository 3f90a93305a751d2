package drafter

// lengths are those of the last answers. How much is still to come of another one decides whether it pays to have a draft model read
// its prompt: a hundred tokens read cost as much as several tokens decoded, for one more token and for a thousand.
type lengths struct {
	recent [32]int
	n      int // answers that ended
}

// usualLeft is how many tokens are thought to follow where no answer was as long; it counts as much as a part of an answer does.
const (
	usualLeft   = 64
	usualWeight = 0.25
)

func (l *lengths) add(tokens int) {
	l.recent[l.n%len(l.recent)] = tokens
	l.n++
}

// left is how many tokens follow in the mean after so many, by the answers that were longer.
func (l *lengths) left(done int) float64 {
	sum, n := usualWeight*usualLeft, usualWeight
	for _, length := range l.recent[:min(l.n, len(l.recent))] {
		if length > done {
			sum, n = sum+float64(length-done), n+1
		}
	}
	return sum / n
}
