package chat

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime is Python's datetime.strftime in the C locale. The clock has no zone there, so %z and %Z are empty.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^#", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		text, width := directive(t, format[i])
		switch {
		case width == 0 && flag == '^':
			text = strings.ToUpper(text)
		case width == 0 || flag == '-':
		case flag == '_':
			text = strings.Repeat(" ", max(width-len(text), 0)) + text
		case flag == '0' || format[i] != 'e' && format[i] != 'k' && format[i] != 'l':
			text = strings.Repeat("0", max(width-len(text), 0)) + text
		default:
			text = strings.Repeat(" ", max(width-len(text), 0)) + text
		}
		b.WriteString(text)
	}
	return b.String()
}

// directive returns the text of one directive, and for numbers the width they are padded to.
func directive(t time.Time, c byte) (text string, width int) {
	num := func(n, width int) (string, int) { return strconv.Itoa(n), width }
	hour12 := (t.Hour()+11)%12 + 1
	week := func(first time.Weekday) int {
		return (t.YearDay() + 6 - (int(t.Weekday())-int(first)+7)%7) / 7
	}
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'a', 'A', 'b', 'h', 'B', 'p', 'P', 'c', 'x', 'D', 'X', 'T', 'F', 'R', 'r':
		layouts := map[byte]string{
			'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm", 'c': "Mon Jan _2 15:04:05 2006",
			'x': "01/02/06", 'D': "01/02/06", 'X': "15:04:05", 'T': "15:04:05", 'F': "2006-01-02", 'R': "15:04", 'r': "03:04:05 PM",
		}
		return t.Format(layouts[c]), 0
	case 'd', 'e':
		return num(t.Day(), 2)
	case 'm':
		return num(int(t.Month()), 2)
	case 'y':
		return num(t.Year()%100, 2)
	case 'Y':
		return num(t.Year(), 1)
	case 'C':
		return num(t.Year()/100, 2)
	case 'G':
		return num(isoYear, 1)
	case 'g':
		return num(isoYear%100, 2)
	case 'V':
		return num(isoWeek, 2)
	case 'U':
		return num(week(time.Sunday), 2)
	case 'W':
		return num(week(time.Monday), 2)
	case 'H', 'k':
		return num(t.Hour(), 2)
	case 'I', 'l':
		return num(hour12, 2)
	case 'M':
		return num(t.Minute(), 2)
	case 'S':
		return num(t.Second(), 2)
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), 0
	case 'j':
		return num(t.YearDay(), 3)
	case 'w':
		return num(int(t.Weekday()), 1)
	case 'u':
		return num((int(t.Weekday())+6)%7+1, 1)
	case 's':
		return strconv.FormatInt(t.Unix(), 10), 0
	case 'n':
		return "\n", 0
	case 't':
		return "\t", 0
	case '%':
		return "%", 0
	case 'z', 'Z':
		return "", 0
	}
	return "%" + string(c), 0
}
