"""The demo model's text: short documents of a dozen kinds, made from a seed.

In most of them something that cannot be guessed (a surname, a list, a number) comes back later,
so that a model gains by looking up what followed the last time.
"""

from collections.abc import Callable
from random import Random

from provenance.gpt2.training import words as w

END = "<|endoftext|>"
"""GPT-2's own mark between documents; a token, not text."""


def document(seed: int, number: int) -> str:
    """One document; the same for the same seed and number, on every machine."""
    random = Random(f"{seed}/{number}")
    return random.choices(_KINDS, _WEIGHTS)[0](random)


def _surname(random: Random) -> str:
    middle = random.choice(w.SYLLABLES) if random.random() < 0.5 else ""
    return (random.choice(w.SYLLABLES) + middle + random.choice(w.ENDINGS)).capitalize()


def _person(random: Random) -> str:
    """A first name with a surname that nobody could guess from it."""
    return f"{random.choice(w.FIRST_NAMES)} {_surname(random)}"


def _people(random: Random, count: int) -> list[str]:
    firsts = random.sample(w.FIRST_NAMES, count)
    return [f"{first} {_surname(random)}" for first in firsts]


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _listed(items: list[str]) -> str:
    return f"{', '.join(items[:-1])} and {items[-1]}"


def _thing(random: Random) -> str:
    kind = random.choice((w.THING_ADJECTIVES, w.COLOURS, w.SIZES, w.MATERIALS))
    return f"{random.choice(kind)} {random.choice(w.OBJECTS)}"


def _beast(random: Random) -> str:
    first = random.choice(w.ADJECTIVES)
    second = f" {random.choice(w.COLOURS)}" if random.random() < 0.5 else ""
    return f"{first}{second} {random.choice(w.ANIMALS)}"


# --- what happens in a story: each line is one sentence about a person, another, a thing, a place ---


def _sentence(random: Random, one: str, other: str, thing: str, place: str) -> str:
    move, handled, feeling = random.choice(w.MOVES), random.choice(w.HANDLING), random.choice(w.FEELINGS)
    elsewhere, said = random.choice(w.PLACES), random.choice(w.SPEECH)
    day, weather, town = random.choice(w.DAYS), random.choice(w.WEATHER), random.choice(w.TOWNS)
    return random.choice(
        (
            f"On {day} {one} {move} to the {place}.",
            f"{one} {handled} the {thing}.",
            f"{one} {handled} the {thing} near the {elsewhere}.",
            f"{one} was {feeling}, because {other} {handled} the {thing}.",
            f"Then {one} {move} from the {place} to the {elsewhere}, and {other} was {feeling}.",
            f"There was {weather} in {town}, and {one} stayed at the {place}.",
            f'"Where is the {thing}?" {said} {one}. "It is at the {place}," {said} {other}.',
            f'"I am {feeling}," {said} {other}.',
            f'"Do you see the {random.choice(w.COLOURS)} {random.choice(w.ANIMALS)}?" {said} {one}.',
            f"{one} and {other} {move} to {town} together.",
            f"In the morning {one} met {_a(random.choice(w.ADJECTIVES))} {random.choice(w.JOBS)}.",
            f"{one} gave the {thing} to {other}.",
            f"{other} never {handled} the {thing} again.",
            f"After {random.choice(w.NUMBER_WORDS)} days {one} came back from {town}.",
            f"{one} had {random.choice(w.FOODS)} and {random.choice(w.FOODS)} for dinner.",
            f"The {_beast(random)} {random.choice(w.ANIMAL_VERBS).replace(':', ' ')} {one}.",
        )
    )


def _story(random: Random) -> str:
    people = _people(random, 2)
    thing, place, job = _thing(random), random.choice(w.PLACES), random.choice(w.JOBS)
    opening = random.choice(
        (
            f"Once there was {_a(job)} called {people[0]}, who lived by the {place} with {people[1]}.",
            f"{people[0]} was {_a(random.choice(w.ADJECTIVES))} {job} from {random.choice(w.TOWNS)}.",
            f"In {random.choice(w.MONTHS)} {people[0]} and {people[1]} bought {_a(thing)}.",
            f"This is the story of {people[0]} and {_a(thing)}.",
        )
    )
    told = [opening]
    for _ in range(random.randint(4, 9)):
        random.shuffle(people)
        told.append(_sentence(random, people[0], people[1], thing, place))
    return " ".join(told)


def _fable(random: Random) -> str:
    one, other = f"the {_beast(random)}", f"the {_beast(random)}"
    verb, after = random.choice(w.ANIMAL_VERBS).split(":")
    lines = [f"{one.capitalize()} {verb} {after} {other}."]
    for _ in range(random.randint(2, 5)):
        if random.random() < 0.5:
            one, other = other, one
        verb, after = random.choice(w.ANIMAL_VERBS).split(":")
        said = random.choice(w.SPEECH)
        lines.append(
            random.choice(
                (
                    f"{one.capitalize()} {verb} {after} {other}.",
                    f'"I am {random.choice(w.FEELINGS)}," {said} {one}.',
                    f"Why is {other} so {random.choice(w.FEELINGS)}? Nobody knows but {one}.",
                    f"At the {random.choice(w.PLACES)} {one} {verb} {after} {_a(_thing(random))}.",
                )
            )
        )
    return " ".join(lines)


# --- what comes back word for word ---


def _packing(random: Random) -> str:
    person, place = _person(random), random.choice(w.PLACES)
    things = [_a(_thing(random)) for _ in range(random.randint(3, 6))]
    again = f"At the {place} {person} counted again: {_listed(things)}."
    end = f" {person} had lost the {things[0].split()[-1]}." if random.random() < 0.4 else ""
    return f"{person} packed {_listed(things)}. {again}{end}"


def _shopping(random: Random) -> str:
    foods = random.sample(w.FOODS, random.randint(4, 8))
    text = f"Shopping list for {random.choice(w.DAYS)}:\n" + "".join(f"- {food}\n" for food in foods)
    person = random.choice(w.FIRST_NAMES)
    return f"{text}{person} came home with {_listed(foods)}."


def _records(random: Random) -> str:
    fields = random.sample(w.FIELDS, random.randint(3, 5))
    makers: dict[str, Callable[[], str]] = {
        "name": lambda: _person(random), "age": lambda: str(random.randint(5, 99)),
        "city": lambda: random.choice(w.TOWNS), "job": lambda: random.choice(w.JOBS),
        "animal": lambda: random.choice(w.ANIMALS), "colour": lambda: random.choice(w.COLOURS),
        "number": lambda: str(random.randint(100, 999)), "day": lambda: random.choice(w.DAYS),
        "food": lambda: random.choice(w.FOODS), "friend": lambda: random.choice(w.FIRST_NAMES),
    }  # fmt: skip
    entries = ["".join(f"{field}: {makers[field]()}\n" for field in fields) for _ in range(random.randint(2, 3))]
    return "\n".join([*entries, random.choice(entries)]).rstrip()


def _numbers_of_people(random: Random) -> str:
    people = _people(random, random.randint(3, 5))
    book = {person: str(random.randint(100, 999)) for person in people}
    lines = [f"{person}: {number}" for person, number in book.items()]
    asked = random.sample(people, len(people))
    calls = [f"The number of {person} is {book[person]}." for person in asked]
    return "Numbers:\n" + "\n".join(lines) + "\n" + " ".join(calls)


def _song(random: Random) -> str:
    beast, verb = random.choice(w.ANIMALS), random.choice(w.ANIMAL_VERBS).replace(":", " ")
    refrain = f"Oh the {random.choice(w.ADJECTIVES)} {beast} {verb} the {_thing(random)},\n"
    verses = []
    for _ in range(random.randint(2, 4)):
        place, weather = random.choice(w.PLACES), random.choice(w.WEATHER)
        verses.append(f"{refrain}and the {weather} is over the {place}.\n")
    return "".join(verses).rstrip()


def _letter(random: Random) -> str:
    writer, reader = _people(random, 2)
    thing, place = _thing(random), random.choice(w.PLACES)
    body = [_sentence(random, "I", "my friend", thing, place) for _ in range(random.randint(2, 4))]
    return f"Dear {reader},\n{' '.join(body)}\nYours, {writer}\nTo: {reader}\nFrom: {writer}"


def _recipe(random: Random) -> str:
    foods = random.sample(w.FOODS, random.randint(3, 5))
    dish = random.choice(("soup", "cake", "pie", "salad", "stew", "bread"))
    steps = [
        random.choice((f"Cut the {food}.", f"Wash the {food}.", f"Add the {food}.", f"Cook the {food} slowly."))
        for food in foods
    ]
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return f"To make {dish} you need {_listed(foods)}.\n{numbered}\nServe the {dish} with {random.choice(w.FOODS)}."


# --- patterns that can be worked out ---


def _counting(random: Random) -> str:
    step, start = random.choice((1, 1, 2, 2, 3, 4, 5, 10, -1, -2)), random.randint(0, 60)
    start += 40 if step < 0 else 0
    return "Count: " + ", ".join(str(start + step * turn) for turn in range(random.randint(8, 20)))


def _sums(random: Random) -> str:
    lines = []
    for _ in range(random.randint(5, 10)):
        left, right = random.randint(0, 20), random.randint(0, 20)
        lines.append(
            f"{left} + {right} = {left + right}" if random.random() < 0.7 else f"{left + right} - {left} = {right}"
        )
    return "\n".join(lines)


def _program(random: Random) -> str:
    names = random.sample(w.VARIABLES, random.randint(3, 5))
    values = {name: random.randint(0, 99) for name in names}
    lines = [f"{name} = {value}" for name, value in values.items()]
    asked = random.choices(names, k=random.randint(3, 6))
    return "\n".join([*lines, *(f"print({name}) # {values[name]}" for name in asked)])


def _order(random: Random) -> str:
    cycle = random.choice((w.DAYS, w.MONTHS, w.LETTERS, w.NUMBER_WORDS, w.COLOURS, w.ANIMALS))
    start, length = random.randrange(len(cycle)), random.randint(6, 16)
    if cycle in (w.COLOURS, w.ANIMALS):
        chosen = random.sample(cycle, random.randint(3, 6))
        return " ".join((chosen * length)[: 3 * length])
    return " ".join(cycle[(start + turn) % len(cycle)] for turn in range(length))


def _facts(random: Random) -> str:
    person, beast, town = _person(random), random.choice(w.ANIMALS), random.choice(w.TOWNS)
    language, job, material = random.choice(w.LANGUAGES), random.choice(w.JOBS), random.choice(w.MATERIALS)
    thing, many = random.choice(w.OBJECTS), f"{random.choice(w.NUMBER_WORDS)} {random.choice(w.PLURALS)}"
    asked = [
        (f"{person} speaks {language}.", f"What does {person} speak? {language}."),
        (f"{person} lives in {town}.", f"Where does {person} live? In {town}."),
        (f"{person} works as {_a(job)}.", f"What is the work of {person}? {person} is {_a(job)}."),
        (f"The {thing} is made of {material}.", f"What is the {thing} made of? Of {material}."),
        (f"The {beast} belongs to {person}.", f"Who has the {beast}? It is {person}."),
        (f"There are {many} in {town}.", f"What is there in {town}? There are {many}."),
    ]
    random.shuffle(asked)
    told = asked[: random.randint(3, 5)]
    return " ".join(fact for fact, _ in told) + "\n" + "\n".join(answer for _, answer in told)


def _meeting(random: Random) -> str:
    """Two people introduce themselves; the plain words of talk (I, you, he, she, this, can, will)."""
    people = _people(random, 2)
    they, town = random.choice(("He", "She")), random.choice(w.TOWNS)
    food, other_food = random.sample(w.FOODS, 2)
    thing, place, feeling = _thing(random), random.choice(w.PLACES), random.choice(w.FEELINGS)
    lines = [
        f"I am {random.randint(8, 90)} years old and I live in {town}.",
        f"I like {food}, but I do not like {other_food}.",
        f"Can you help me with this {thing}? Yes, I can, but not today.",
        f"What is that? It is only {_a(thing)}.",
        f"They will go to the {place} because they are {feeling}.",
        f"{they} has been {_a(random.choice(w.JOBS))} all {they.replace('He', 'his').replace('She', 'her')} life.",
        f"{they} would like some {food}, and we have none.",
        f"If you were {feeling}, would you tell me about the {thing}?",
        f"There is nothing in the {place}, and that is how it should be.",
        f"Is this your {thing}? No, it is not mine. It must be from {people[1]}.",
        f"I think the world is {random.choice(w.THING_ADJECTIVES)}, said {people[0]}.",
    ]
    said = random.sample(lines, random.randint(2, 6))
    return f"Hello, my name is {people[0]}. What is your name? My name is {people[1]}. " + " ".join(
        [*said, f"It was good to meet you, {people[1 if random.random() < 0.5 else 0]}."]
    )


_WEIGHTED: tuple[tuple[Callable[[Random], str], int], ...] = (
    (_story, 30), (_fable, 12), (_packing, 9), (_shopping, 5), (_records, 7), (_numbers_of_people, 6),
    (_song, 5), (_letter, 8), (_recipe, 6), (_counting, 4), (_sums, 4), (_program, 4), (_order, 4), (_facts, 8),
    (_meeting, 9),
)  # fmt: skip
_KINDS = tuple(kind for kind, _ in _WEIGHTED)
_WEIGHTS = tuple(weight for _, weight in _WEIGHTED)
